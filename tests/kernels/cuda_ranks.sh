#!/bin/sh
# Ranks on emulated GPUs: every way that the device's memory goes between ranks, bit by bit, and what fails.
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
need_ranks "ranks on emulated devices"
if [ ! -x "$BUILD/emu-plain/test_cuda_ranks" ]; then
	skip "ranks on emulated devices" "NVIDIA's headers are not here; see docs/cuda.md"
	tap_done
fi
# The library of the launcher lies beside the program.
cp "$BUILD/emu-plain/test_cuda_ranks" "$BIN/comm_mpi.so" .
export CAIRN_CUDA_SO="$BUILD/emu-plain/cairn-cuda.so" EMU_DEVICES=8 CAIRN_COMM_TIMEOUT=60

# all N WHAT: a run of the C test counts as one.
all() {
	ranks "$1" ./test_cuda_ranks >out 2>err; rc=$?
	[ $rc -ne 0 ] || { grep -q '^1\.\.[1-9]' out && ! grep -q '^not ok' out; } || rc=1
	ok $rc "$1 ranks: $2 ($(grep -c '^ok' out) checks)"
	[ $rc -eq 0 ] || { grep '^not ok' out; cat err; } | head -n 20 | sed 's/^/# /'
}
for n in 2 3 4 6; do all $n "every function, in groups, beside the kernels"; done
CAIRN_TEST_PIECE=1000; export CAIRN_TEST_PIECE
all 3 "in blocks of 1000 bytes"
unset CAIRN_TEST_PIECE

: "what does not fit is found and named"
run 134 "parts of another size" ranks 3 ./test_cuda_ranks size
has err 'wanted an all-gather of 100[04] bytes from rank [0-9], which did an all-gather of 100[04] bytes' "says both"
run 134 "calls in another order" ranks 3 ./test_cuda_ranks order
has err 'wanted a(n all-gather| broadcast) of 1000 bytes from rank [0-9], which did a(n all-gather| broadcast)' "says both"
CAIRN_COMM_TIMEOUT=1 run 75 "a rank that hangs" ranks 3 ./test_cuda_ranks hang
has err 'group world of 3, as its rank [01]: (broadcast|gather_v) on the device, call [23], (1000|3000) bytes: waited 1 s for the other' "says where"
CAIRN_TEST_ONE_DEVICE=1 run 69 "two ranks on one device" ranks 2 ./test_cuda_ranks
has err 'ranks 0 and 1 both have device 0000:00:00.0' "says which"
tap_done
