#!/bin/sh
# The CUDA backend: all of tests/kernels/cuda.sh, and what ptxas says of the kernels: no registers spilled, no local memory, registers
# within tests/ci/ptxas.tsv (after a change that is meant: CUDA_BUDGET=write sh tests/ci/cuda.sh).
. "$CAIRN_ROOT/tests/lib/tap.sh"
cd "$CAIRN_ROOT" || exit 1
if [ -f "${CUDA_HOME:-/usr/local/cuda}/include/cuda_bf16.h" ]; then
	run 0 "the emulated backend builds, plain and under sanitizers" make -s CUDA=0 MPI=0 BUILD="$BUILD" BIN="$BIN" emu-plain emu-address emu-thread
	CUDA_FULL=1 sh tests/kernels/cuda.sh >full 2>&1
	ok $? "on an emulated device: $(grep -c '^ok' full) checks"
	grep -v '^ok' full | head -n 40 | sed 's/^/# /'
else
	skip "the CUDA backend on an emulated device" "NVIDIA's headers are not here; see docs/cuda.md"
fi
if [ -e "$BUILD/emu-plain/cairn-cuda.so" ]; then
	sh tests/gpu/run.sh --tiny "$TEST_TMP/gpu" >table 2>full
	ok $? "tests/gpu/run.sh --tiny from end to end: $(grep -c '^|' table) lines"
	grep -v ' s$' full | head -n 20 | sed 's/^/# /'
	rm -f table
fi
nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
if [ ! -x "$nvcc" ]; then
	skip "registers of the kernels" "nvcc is not here"
	rm -f out err full
	tap_done
fi
budget=tests/ci/ptxas.tsv
: >"$TEST_TMP/found"
for f in kernels/cuda/*.cu; do
	for arch in 80 90; do
		"$nvcc" -I. -std=c++17 -O3 -fmad=false -gencode arch=compute_$arch,code=sm_$arch -Xptxas -v,-warn-spills,-warn-lmem-usage -Werror all-warnings \
			-c "$f" -o "$TEST_TMP/o" 2>"$TEST_TMP/log"
		ok $? "nvcc sm_$arch: $f"
		! grep -E 'spill|local memory' "$TEST_TMP/log" | grep -vE ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' >"$TEST_TMP/bad"
		ok $? "nothing is spilled, no local memory: $f for sm_$arch"
		head -n 5 "$TEST_TMP/bad" | sed 's/^/# /'
		# FILE KERNEL ARCH REGISTERS; a name in an anonymous scope carries a hash of the file's path
		sed -n "s/.*Compiling entry function '\([^']*\)'.*/\1/p; s/.*Used \([0-9]*\) registers.*/\1/p" "$TEST_TMP/log" |
			paste - - | sed 's/_INTERNAL_[0-9a-f]*_[0-9]*_[a-z_0-9]*_cu_[0-9a-f]*_[0-9]*//' |
			awk -v f="$(basename "$f" .cu)" -v a="sm_$arch" '{ print f "\t" $1 "\t" a "\t" $2 }' >>"$TEST_TMP/found"
	done
done
: "what the source asks of tensor cores and cp.async is what the GPU is told"
in_ptx() { # in_ptx FILE WRAPPER INSTRUCTION
	grep -q "$2" "$1" || return
	grep -qE -- "$3" "$TEST_TMP/ptx"
	ok $? "$1: $(grep -cE -- "$3" "$TEST_TMP/ptx") $3"
}
for f in kernels/cuda/*.cu; do
	grep -qE 'ck_(mma|ldmatrix|copy)' "$f" || continue
	"$nvcc" -I. -std=c++17 -O3 -fmad=false -arch=compute_90 -ptx "$f" -o "$TEST_TMP/ptx" 2>"$TEST_TMP/log"
	in_ptx "$f" 'ck_mma_bf16(' 'mma.sync.aligned.m16n8k16.row.col.f32.bf16'
	in_ptx "$f" 'ck_mma_tf32(' 'mma.sync.aligned.m16n8k8.row.col.f32.tf32'
	in_ptx "$f" 'ck_ldmatrix' 'ldmatrix.sync.aligned'
	in_ptx "$f" 'ck_copy16(' 'cp.async.cg.shared.global'
done
sort "$TEST_TMP/found" >"$TEST_TMP/sorted"
[ "${CUDA_BUDGET:-}" != write ] || cp "$TEST_TMP/sorted" $budget
awk -F'\t' 'NR == FNR { most[$1 $2 $3] = $4; next }
	!($1 $2 $3 in most) { print "no budget for " $2 " of " $1 ".cu, " $3 ": " $4 " registers"; next }
	$4 > most[$1 $2 $3] { print $2 " of " $1 ".cu, " $3 ": " $4 " registers, budget " most[$1 $2 $3] }' \
	$budget "$TEST_TMP/sorted" >"$TEST_TMP/over"
[ ! -s "$TEST_TMP/over" ]
ok $? "registers of $(wc -l <"$TEST_TMP/sorted") kernels within $budget"
head -n 20 "$TEST_TMP/over" | sed 's/^/# /'
rm -f out err full
tap_done
