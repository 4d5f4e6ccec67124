#!/bin/sh
# Everything builds without a warning, with gcc and with clang.
. "$CAIRN_ROOT/tests/lib/tap.sh"
cd "$CAIRN_ROOT" || exit 1
for cc in gcc clang; do
	run 0 "no warnings: $cc" make -s CC=$cc WERROR=1 CUDA=0 MPI=1 BUILD="$BUILD/ci-$cc" BIN="$BUILD/ci-$cc/bin" tools tests-built
done
tap_done
