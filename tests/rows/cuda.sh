#!/bin/sh
# cuda.sh FOLDER: the rows of `make rows` about the CUDA backend; FOLDER is new.  ROWS_LONG=1 adds the sanitizers and ptxas.
# shellcheck shell=sh
set -u
mkdir -p "$1"
cd "$1" || exit 1
work=$(pwd)
row() { # row NAME VALUE GOAL STATUS
	printf 'ROW\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$([ "$4" -eq 0 ] && echo ok || echo short)"
}
# test_of NAME COMMAND...: its output in NAME, what came of it in $sum, its status in $bad
test_of() {
	name=$1; shift
	mkdir -p tmp
	TEST_TMP=$work/tmp "$@" >"$name" 2>&1 </dev/null
	bad=$?
	rm -rf tmp
	sum=$(awk '/^ok.*# SKIP/ { s++; next } /^ok/ { p++ } /^not ok/ { f++ } END { printf "%d passed, %d failed%s", p, f, s ? ", " s " skipped" : "" }' "$name")
	! grep -q '^ok.*# SKIP' "$name" || { bad=1; sum="not run: $(sed -n 's/^ok.*# SKIP //p' "$name" | head -n 1)"; }
}
here=0
[ -e "$BUILD/emu-plain/planted" ] || here=1
ops="every op on the emulated device against float64, bf16 4e-3, float32 1e-5"
same="rows in any company, packing, prefill and decode, on the emulated device"
if [ $here -eq 0 ]; then
	all=0 good=0 bad=0 bits=0
	for t in "$BUILD"/emu-plain/test_cuda_*; do
		case $t in *.o | *.d) continue ;; esac
		CAIRN_TEST_SHORT=1 CAIRN_CUDA_SO=$BUILD/emu-plain/cairn-cuda.so "$t" >out 2>err || bad=1
		all=$((all + $(grep -cE '^(not )?ok' out))) good=$((good + $(grep -c '^ok' out)))
		bits=$((bits + $(grep -cE '^ok.*(same bits|alone|any company)' out)))
	done
	row "$ops" "$good of $all checks" all $((bad + all - good))
	row "$same" "$bits checks" "identical bits" $((bad + (bits < 20)))
else
	row "$ops" "not run: NVIDIA's headers are not here" all 1
	row "$same" "not run: NVIDIA's headers are not here" "identical bits" 1
fi

test_of whole sh "$CAIRN_ROOT/tests/tools/cuda.sh"
# off PATTERN: the largest relative distance of `PATTERN: A, the CPU B`
off() {
	sed -n "s/^.*ok.*$1: \([-0-9.e+]*\), the CPU \([-0-9.e+]*\)$/\1 \2/p" whole |
		awk '{ d = ($1 - $2) / $2; d = d < 0 ? -d : d; m = d > m ? d : m } END { if (NR) printf "%.2g", m; else print "none" }'
}
[ $bad -eq 0 ] && value="loss $(off loss), norm $(off 'norm of the gradient'); $sum" || value=$sum
row "train-step and rollout of tiny models on the emulated device against the CPU" "$value" "1e-5, the same greedy ids" $bad
exact=$(sed -n 's/^ok.* log-probabilities of \([0-9]*\) tokens, 0 differ$/\1/p' whole | awk '{ n += $1 } END { print n + 0 }')
[ $bad -eq 0 ] && value="0 of $exact tokens" || value=$sum
row "recorded minus recomputed log-probability on the emulated device, bits different" "$value" 0 $((bad + (exact < 20)))

if [ -e "$CAIRN_ROOT/tests/tools/cuda_ranks.sh" ]; then
	test_of ranks sh "$CAIRN_ROOT/tests/tools/cuda_ranks.sh"
else
	bad=1 sum="not run: it is not built yet"
fi
row "emulated NCCL, 2 to 4 ranks, TP and DP, against one rank" "$sum" 1e-5 $bad

test_of planted sh "$CAIRN_ROOT/tests/kernels/cuda.sh"
row "planted mistakes, and all kernels in two orders of threads" "$sum" all $bad
if [ "${ROWS_LONG:-0}" = 1 ]; then
	test_of full sh "$CAIRN_ROOT/tests/ci/cuda.sh"
	full=$sum ptxas=$(sed -n 's/^ok.* - \(registers of .*\)/\1/p' full)
else
	bad=1 full="not run: takes an hour; ROWS_LONG=1" ptxas=$full
fi
row "TSan, ASan, UBSan over all kernels, seven orders; planted mistakes" "$full" "clean; all found" $bad
row "ptxas: spills, local memory, registers; mma and cp.async where claimed" "${ptxas:-not run: nvcc is not here}" "none; within tests/ci/ptxas.tsv" \
	"$([ -n "$ptxas" ] && echo $bad || echo 1)"

# start PROGRAM: the fastest of ten, in ms
start() {
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		a=$(date +%s%N); "$BIN/$1" --version >/dev/null; echo $((($(date +%s%N) - a) / 1000))
	done | sort -n | head -n 1
}
for p in rollout score train-step; do ldd "$BIN/$p"; done >libraries
slow=$(for p in rollout score train-step; do start $p; done | sort -n | tail -n 1)
row "programs that no CUDA library is linked into: start of the slowest" \
	"$(awk -v u="$slow" 'BEGIN { printf "%.1f ms", u / 1000 }'), $(grep -ciE 'cuda|nvidia|nccl' libraries) libraries of CUDA" "< 100 ms, 0" \
	$((slow > 100000 || $(grep -ciE 'cuda|nvidia|nccl' libraries)))
gpu="on an H200: tests/gpu/run.sh, attention, decode, AdamW, norms, train-step against their floors"
if [ -e /dev/nvidia0 ]; then
	CAIRN_CUDA_SO='' sh "$CAIRN_ROOT/tests/gpu/run.sh" >table 2>err; bad=$?
	cat table >&2
	row "$gpu" "$(grep -c '^|' table) lines" "docs/measurements.md" $bad
else
	row "$gpu" "not run: no GPU is here" "docs/measurements.md" 1
fi
