#!/bin/sh
# The C tests and the programs' tests under AddressSanitizer and UndefinedBehaviorSanitizer.
. "$CAIRN_ROOT/tests/lib/tap.sh"
cd "$CAIRN_ROOT" || exit 1
san=$BUILD/ci-san
run 0 "builds with the sanitizers" make -s DEBUG=1 CUDA=0 MPI=0 BUILD="$san" BIN="$san/bin" tools tests-built
tests=$(find "$san/tests" -type f -name 'test_*' ! -name '*.o' ! -name '*.d' | sort)
for t in $tests; do
	name=${t#"$san"/tests/}
	TEST_TMP=$(mktemp -d) ASAN_OPTIONS=detect_leaks=0 timeout 600 "$t" >out 2>err </dev/null
	rc=$?
	ok $rc "sanitizers: $name"
	[ $rc -eq 0 ] || { grep '^not ok' out | head -5 | sed 's/^/# /'; grep -E 'ERROR|runtime error' err | head -5 | sed 's/^/# /'; }
done
rm -f out err
tap_done
