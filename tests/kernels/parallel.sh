#!/bin/sh
# Models over ranks against one rank: every layout of test_parallel_model.c that has as many.
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
need_ranks "models over several ranks"

# all N TEST WHAT: a run of the C test counts as one.
all() {
	ranks "$1" "$BUILD/tests/kernels/$2" >out 2>err; rc=$?
	[ $rc -ne 0 ] || { grep -q '^1\.\.[1-9]' out && ! grep -q '^not ok' out; } || rc=1
	ok $rc "$1 ranks: $3 ($(grep -c '^ok' out) checks)"
	[ $rc -eq 0 ] || { grep '^not ok' out; cat err; } | head -n 20 | sed 's/^/# /'
}
for n in 2 3 4 6 8; do all $n test_parallel_model "the bits and the gradients of one rank"; done
tap_done
