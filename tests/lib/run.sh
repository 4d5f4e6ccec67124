#!/bin/sh
# run.sh TEST...: run each test, two at a time; print a line a test, the whole output of one that fails, and
# at the end the sum of all TAP lines: `N passed, N failed, N skipped`.
# A test is a program or a .sh; it prints TAP ("ok 1 - what", "# SKIP why") and exits 0.
set -u
PATH=$BIN:$PATH
CAIRN_ROOT=$(pwd)
export PATH CAIRN_ROOT BUILD BIN
out=$(mktemp -d "${TMPDIR:-/tmp}/cairn-check.XXXXXX")
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT TERM

one() {
	name=$1; n=$2
	case $name in *.sh) set -- sh "$name" ;; *) set -- "$name" ;; esac
	TEST_TMP=$out/tmp.$n; mkdir -p "$TEST_TMP"; export TEST_TMP
	timeout "${TEST_TIMEOUT:-900}" "$@" >"$out/$n.out" 2>&1 </dev/null
	rc=$?
	rm -rf "$TEST_TMP"
	good=$(grep -c '^ok' "$out/$n.out"); bad=$(grep -c '^not ok' "$out/$n.out"); skip=$(grep -c '^ok.*# SKIP' "$out/$n.out")
	[ $rc -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
	echo "$((good - skip)) $bad $skip" >"$out/$n.sum"
	if [ "$bad" -eq 0 ]; then
		printf 'ok   %s (%s%s)\n' "$name" "$good" "$([ "$skip" -eq 0 ] || printf ', %s skipped' "$skip")"
		grep '^ok.*# SKIP' "$out/$n.out" | sed 's/^/       /'
	else
		{ printf 'FAIL %s (exit %s)\n' "$name" "$rc"; grep -v '^ok' "$out/$n.out" | tail -n 60 | sed 's/^/       /'; }
	fi
}

n=0
for t; do
	n=$((n + 1))
	one "$t" $n &
	[ $((n % ${TEST_JOBS:-2})) -ne 0 ] || wait
done
wait
cat "$out"/*.sum 2>/dev/null | awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }'
