#!/bin/sh
# Every parser of outside bytes: FUZZ_SECONDS of libFuzzer each, from the seeds in the tree.  Its control: the same with a bug planted
# (tests/fuzz/planted.c), which it must find.
. "$CAIRN_ROOT/tests/lib/tap.sh"
run 0 "fuzz targets build" make -s -C "$CAIRN_ROOT" CUDA=0 MPI=0 fuzz-build
cd "$CAIRN_ROOT" || exit 1
for t in "$BUILD"/fuzz/tests/fuzz/fuzz_*; do
	case $t in *.o | *.d | *_planted) continue ;; esac
	name=$(basename "$t" | sed 's/^fuzz_//')
	mkdir -p "$TEST_TMP/$name"
	"$t" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=3000 -print_final_stats=1 -artifact_prefix="$TEST_TMP/" \
		"$TEST_TMP/$name" "tests/fuzz/corpus/$name" >"$TEST_TMP/log" 2>&1
	rc=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$TEST_TMP/log")
	edges=$(grep -o 'cov: [0-9]*' "$TEST_TMP/log" | tail -1)
	ok $rc "fuzz $name: $runs executions, $edges"
	[ $rc -eq 0 ] || grep -E 'ERROR|SUMMARY|runtime error' "$TEST_TMP/log" | head -5 | sed 's/^/# /'
done
name=json
[ "${FUZZ_SECONDS:-10}" -lt 60 ] || name=$(cd tests/fuzz && echo fuzz_*.c | sed 's/fuzz_//g; s/\.c//g')
for name in $name; do
	mkdir -p "$TEST_TMP/p"
	"$BUILD/fuzz/tests/fuzz/fuzz_${name}_planted" -max_total_time=120 -timeout=10 -rss_limit_mb=3000 -artifact_prefix="$TEST_TMP/" \
		"$TEST_TMP/p" "tests/fuzz/corpus/$name" >"$TEST_TMP/log" 2>&1
	grep -qa 'SUMMARY.*heap-buffer-overflow.*planted.c' "$TEST_TMP/log"
	ok $? "fuzz $name: a planted bug is found after $(grep -c '^#' "$TEST_TMP/log") reports"
	rm -rf "$TEST_TMP/p"
done
tap_done
