#!/bin/sh
# Models over ranks against one rank: every layout of test_parallel_model.c that has as many.
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
need_ranks "models over several ranks"

# all N WHAT TEST [ARGUMENT]: a run of the C test counts as one.
all() {
	n=$1 what=$2 test=$3; shift 3
	ranks "$n" "$BUILD/tests/kernels/$test" "$@" >out 2>err; rc=$?
	[ $rc -ne 0 ] || { grep -q '^1\.\.[1-9]' out && ! grep -q '^not ok' out; } || rc=1
	ok $rc "$n ranks: $what ($(grep -c '^ok' out) checks)"
	[ $rc -eq 0 ] || { grep '^not ok' out; cat err; } | head -n 20 | sed 's/^/# /'
}
CAIRN_COMM_TIMEOUT=60; export CAIRN_COMM_TIMEOUT
for n in 2 3 4 6 8; do all $n "the bits and the gradients of one rank" test_parallel_model; done
for n in 2 3 4 5 8; do all $n "owners of gradients, masters and moments" test_state; done
for n in 2 3 4 5 8; do all $n "a pipeline of as many stages" test_pipeline; done
# Messages that wait for their receiver, however short.
OMPI_MCA_btl_vader_eager_limit=256; export OMPI_MCA_btl_vader_eager_limit
all 4 "a pipeline whose messages wait" test_pipeline
unset OMPI_MCA_btl_vader_eager_limit
all 4 "the bubble of sleeping stages" test_pipeline bubble
tap_done
