#!/bin/sh
# The CUDA backend without a GPU: its kernels, compiled by g++ for an emulated device (docs/cuda.md), in several orders of threads.
# CUDA_FULL=1 (make ci): more orders, and the same under AddressSanitizer with UBSan, and under ThreadSanitizer.  Kernels with a mistake
# each show that every net catches its kind.  CUDA_SIZES=all: all sizes of every test, hours.
. "$CAIRN_ROOT/tests/lib/tap.sh"

if [ "$(uname -m)" != x86_64 ] || [ ! -x "$BUILD/emu-plain/planted" ]; then
	skip "the CUDA backend on an emulated device" "NVIDIA's headers are not here; see docs/cuda.md"
	tap_done
fi
kinds=plain
[ -z "${CUDA_FULL:-}" ] || kinds="plain address thread"
[ -n "${CUDA_SIZES:-}" ] || export CAIRN_TEST_SHORT=1

# caught KIND NAME STATUS PATTERN: `planted NAME` ends with STATUS and says PATTERN.
caught() {
	case " $kinds " in *" $1 "*) ;; *) return ;; esac
	got=$({ (exec timeout 120 "$BUILD/emu-$1/planted" "$2") >out 2>err; echo $?; } 2>/dev/null)
	[ "$got" -eq "$3" ] && { [ -z "$4" ] || grep -aqE -- "$4" err; }
	rc=$?
	ok $rc "$1: $2"
	[ $rc -eq 0 ] || { echo "# exit $got, wanted $3 and /$4/"; head -n 5 err | sed 's/^/# /'; }
}
everywhere() { for kind in plain address thread; do caught $kind "$@"; done; }

for clean in sum pipeline fragments warp; do everywhere $clean 0 ''; done
: "barriers, in the numbers and in the order that ThreadSanitizer sees"
caught plain sum-no-barrier 1 'wrong: value'
caught plain sum-no-second-barrier 1 'wrong: value'
caught plain warp-no-syncwarp 1 'wrong: value'
caught plain pipeline-early-reuse 1 'wrong: value'
for bug in sum-no-barrier sum-no-second-barrier warp-no-syncwarp pipeline-early-reuse two-blocks; do
	caught thread $bug 66 'data race'
done
: "what a GPU leaves undefined is NaN, or the end"
everywhere sum-unset-shared 1 'wrong: value .* -?nan'
everywhere pipeline-no-wait 134 'ends with cp.async under way'
everywhere warp-diverged 134 'warp collective of .*mask ffffffff'
everywhere warp-exited-lane 134 'names lane 5, which has ended'
everywhere early-return 134 '__syncthreads at .*planted.cu:[0-9]+, and 1 threads have ended'
everywhere two-barriers 134 'thread 64 is at .*planted.cu:[0-9]+, thread 0 at'
: "memory"
caught address sum-out-of-shared 1 'planted.cu:[0-9]+.*index 128 out of bounds'
caught address past-the-end 1 'AddressSanitizer: use-after-poison'
caught address misaligned 1 'planted.cu:[0-9]+.*misaligned address'
everywhere host-pointer 134 'argument 1 of a kernel, .* is no memory of the device'
everywhere device-full 69 'out of device memory: [0-9]+ bytes for scratch'
: "the host: waits that are missing, launches that cannot be"
everywhere no-wait 1 'wrong: value'
everywhere no-event 1 'wrong: value'
everywhere too-many-threads 69 'too_many_threads: kernel .*invalid configuration'

# tests KIND ORDER SEED: every test_cuda_* there.
tests() {
	for t in "$BUILD/emu-$1"/test_cuda_*; do
		case $t in *.o | *.d) continue ;; esac
		name=$(basename "$t")
		CAIRN_CUDA_SO=$BUILD/emu-$1/cairn-cuda.so EMU_ORDER=$2 EMU_SEED=$3 timeout 900 "$t" >out 2>err
		rc=$?
		ok $rc "$name: $1, $2 $3: $(grep -c '^ok' out) checks"
		[ $rc -eq 0 ] || { grep '^not ok' -A1 out | head -n 10 | sed 's/^/# /'; head -n 20 err | sed 's/^/# /'; }
	done
}
tests plain greedy 1
if [ -n "${CUDA_FULL:-}" ]; then
	for seed in 1 2 3; do
		tests plain pct $seed
		tests plain random $seed
	done
	tests address pct 1
	tests thread forward 1
else
	tests plain pct 1
fi
tap_done
