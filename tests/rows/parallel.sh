#!/bin/sh
# parallel.sh FOLDER: the rows of `make rows` about several ranks that are measured; FOLDER is new.
# shellcheck shell=sh
set -eu
mkdir -p "$1"
cd "$1"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
row() { # row NAME VALUE GOAL CONDITION-FOR-AWK
	verdict=$(awk "BEGIN { print ($4) ? \"ok\" : \"short\" }")
	printf 'ROW\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$verdict"
}
memory="16,384 tokens, CP 4: activations of a rank over a quarter of CP 1's"
gradients="16,384 tokens, CP 4: gradients against CP 1, relative"
bubble="pipeline of sleeping stages, p = 4, m = 16: bubble over (p - 1) / m"
if ! command -v mpirun >/dev/null 2>&1 || [ ! -e "$BIN/comm_mpi.so" ]; then
	for name in "$memory" "$gradients" "$bubble"; do row "$name" "not run: no MPI" "" 0; done
	exit 0
fi
# number PATTERN: what stands behind it; 1e9 where nothing does.
number() { n=$(sed -n "s/^.*$1\([0-9.e+-]*\).*/\1/p" out); echo "${n:-1e9}"; }

ranks 4 "$BUILD/tests/kernels/test_parallel_model" context >out 2>err || true
row "$memory" "$(number "one rank's: ")" "0.65 to 1.35" "$(number "one rank's: ") <= 1.35"
row "$gradients" "$(number 'parameters (worst ')" 1e-5 "$(number 'parameters (worst ') <= 1e-5 && $(grep -c '^ok' out) == 3"
ranks 4 "$BUILD/tests/kernels/test_pipeline" bubble >out 2>err || true
n=$(awk -v b="$(number 'the bubble is ')" 'BEGIN { print b / (3 / 16) }')
row "$bubble" "$n" "0.9 to 1.1" "$n >= 0.9 && $n <= 1.1"
