#!/bin/sh
# run.sh [--tiny] [FOLDER]: everything that wants a GPU, in parts, and one table at the end: ops
# against the CPU backend, whole programs, log-probabilities to the bit, a GRPO run against the
# CPU's, compute-sanitizer, each kernel beside its floor, models, PyTorch.  A part that is done
# stays done in FOLDER (build/gpu): run again, it goes on.  Ends within 8 minutes: parts that no
# time is left for are named.  --tiny: the same lines on the emulated device, in minutes.
# CAIRN_PYTHON: a Python that may have PyTorch.
# shellcheck shell=sh
set -u
cd "$(dirname "$0")/../.." || exit 1
CAIRN_ROOT=$(pwd) tiny=
[ "${1:-}" != --tiny ] || { tiny=--tiny; shift; }
BUILD=${BUILD:-$CAIRN_ROOT/build} BIN=${BIN:-$CAIRN_ROOT/bin} limit=480
state=${1:-$BUILD/gpu${tiny:+-tiny}}
mkdir -p "$state" || exit 73
state=$(cd "$state" && pwd)
if [ -n "$tiny" ]; then
	so=$BUILD/emu-plain/cairn-cuda.so limit=${GPU_LIMIT:-1200} cuda=0
	CAIRN_TEST_SHORT=1; export CAIRN_TEST_SHORT
else
	so=$BIN/cairn-cuda.so cuda=1
fi
PATH=$BIN:$PATH CAIRN_CUDA_SO=$so
export PATH CAIRN_ROOT BUILD BIN CAIRN_CUDA_SO
tests=$(for t in tests/kernels/test_cuda_*.c; do basename "$t" .c; done | grep -v test_cuda_ranks)
begun=$(date +%s) failed=0 left=

# tap NAME COMMAND...: a test; a line of how many of its checks passed
tap() {
	name=$1; shift
	"$@" >"$state/$name.tap" 2>&1; rc=$?
	printf '%s\t\t%s passed, %s failed, %s skipped\t\t\n' "$name" "$(grep '^ok' "$state/$name.tap" | grep -vc '# SKIP')" \
		"$(grep -c '^not ok' "$state/$name.tap")" "$(grep -c '^ok.*# SKIP' "$state/$name.tap")"
	[ $rc -eq 0 ] || { grep -A2 '^not ok' "$state/$name.tap" | head -n 20; tail -n 3 "$state/$name.tap"; } >&2
	return $rc
}
# -- the parts; each prints lines of the table: name, microseconds, what that is, microseconds of the floor, share ---------------
part_build() {
	# shellcheck disable=SC2046,SC2086 # names of targets
	make -s -j"$(nproc)" CUDA=$cuda BUILD="$BUILD" BIN="$BIN" tools "$BUILD/tests/gpu/bench_ops" "$BUILD/tests/gpu/bench_model" \
		${tiny:+emu} $(for t in $tests; do echo "$BUILD/emu-plain/$t"; done) >&2
}
part_ops() { rc=0; for t in $tests; do tap "$t" timeout 120 "$BUILD/emu-plain/$t" || rc=1; done; return $rc; }
part_programs() { CUDA_WHOLE=$so tap programs sh tests/tools/cuda.sh; }
part_exact() {
	if [ -n "$tiny" ]; then echo "exactly on-policy, 10,000 tokens		in 'programs', shorter		"; return; fi
	CAIRN_EXACT_DEVICE=cuda tap exact sh tests/tools/exact.sh
}
part_grpo() { tap grpo sh tests/gpu/grpo.sh; }
part_sanitizer() {
	tool=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
	if [ -n "$tiny" ] || [ -z "$tool" ]; then echo "compute-sanitizer		not run: it is not here, or no GPU is		"; return; fi
	for how in memcheck racecheck; do
		CAIRN_TEST_SHORT=1 tap "$how" timeout 50 "$tool" --tool $how --error-exitcode 9 "$BUILD/emu-plain/test_cuda_rows" || return 1
	done
}
part_peer() { [ -n "$tiny" ] || "${CAIRN_PYTHON:-python3}" tests/gpu/peer.py >"$state/peer.tsv" 2>/dev/null || :; }
matrix() { sed -n 's/^matrix	//p' "$state/peer.tsv" 2>/dev/null; }
part_bench() { CAIRN_GPU_MATRIX=$(matrix) "$BUILD/tests/gpu/bench_ops" $tiny; }
model() { CAIRN_GPU_MATRIX=$(matrix) "$BUILD/tests/gpu/bench_model" ${tiny:+$tiny} "$1" "$2"; }
part_prefill_1b() { model 1b prefill; }
part_decode_1b() { model 1b decode; }
part_train_1b() { model 1b train; }
part_prefill_8b() { model 8b prefill; }
part_decode_8b() { model 8b decode; }
part_train_8b() { model 8b train; }

if [ -n "${GPU_PART:-}" ]; then
	TEST_TMP=$(mktemp -d); export TEST_TMP; trap 'rm -rf "$TEST_TMP"' EXIT
	"part_$GPU_PART"; exit
fi

# part NAME SECONDS
part() {
	parts="${parts:-} $1"
	[ ! -e "$state/$1.tsv.done" ] || { echo "# $1: done before" >&2; return; }
	now=$(date +%s)
	if [ $((now - begun)) -ge "$limit" ]; then left="$left $1"; return; fi
	most=$((begun + limit - now)); [ "$2" -ge $most ] || [ -n "$tiny" ] || most=$2
	GPU_PART=$1 timeout "$most" sh tests/gpu/run.sh $tiny "$state" >"$state/$1.tsv.new" 2>"$state/$1.err"
	rc=$?
	echo "# $1: $(($(date +%s) - now)) s$([ $rc -eq 0 ] || echo ", exit $rc")" >&2
	if [ $rc -eq 0 ]; then mv "$state/$1.tsv.new" "$state/$1.tsv.done"; return; fi
	failed=$((failed + 1))
	tail -n 8 "$state/$1.err" | sed 's/^/#    /' >&2
}
part build 240; part ops 120; part bench 90; part programs 120
part prefill_8b 60; part decode_8b 60; part train_8b 90; part prefill_1b 40; part decode_1b 40; part train_1b 60
part grpo 60; part exact 90; part sanitizer 110; part peer 60

echo "| what | us | | floor, us | floor / time | PyTorch, us |"
echo "| --- | --- | --- | --- | --- | --- |"
for p in $parts; do
	for f in "$state/$p.tsv.done" "$state/$p.tsv.new"; do
		[ -e "$f" ] || continue
		awk -F'\t' 'FNR == 1 { file++ } file == 1 { peer[$1] = $2; next } NF >= 5 { printf "| %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, peer[$1] }' \
			"$([ -s "$state/peer.tsv" ] && echo "$state/peer.tsv" || { echo "none	" >"$state/none.tsv"; echo "$state/none.tsv"; })" "$f"
		break
	done
done
[ -z "$left" ] || echo "# no time was left for:$left; run it again, it goes on"
[ $failed -eq 0 ] && [ -z "$left" ]
