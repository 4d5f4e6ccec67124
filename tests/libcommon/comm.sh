#!/bin/sh
# Ranks under mpirun: every function against what it must give, how ranks fail, what launchers say.
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
need_ranks "programs of several ranks"
test=$BUILD/tests/libcommon/test_comm_ranks

# all N WHAT [quick]: a run of the C test counts as one.
all() {
	n=$1 what=$2; shift 2
	ranks "$n" "$test" "$@" >out 2>err; rc=$?
	[ $rc -ne 0 ] || { grep -q '^1\.\.[1-9]' out && ! grep -q '^not ok' out; } || rc=1
	ok $rc "$n ranks: $what ($(grep -c '^ok' out) checks)"
	[ $rc -eq 0 ] || { grep '^not ok' out; cat err; } | head -n 20 | sed 's/^/# /'
}
for n in 2 4 5 6 7; do all $n "every function" quick; done
all 8 "every function, the groups of two meshes" quick
all 3 "every function, groups, long arrays"
CAIRN_TEST_PIECE=100; export CAIRN_TEST_PIECE
all 3 "in pieces of 100 bytes" quick
unset CAIRN_TEST_PIECE

# ends STATUS HOW WHAT LINE: the last rank does it, the only line is its own.
ends() {
	run "$1" "$3" ranks 3 "$test" "$2"
	[ -z "$4" ] || { grep '^test_comm' err >lines; is "$(cat lines)" "test_comm_ranks: $4" "one line says so"; }
}
ends 65 die "a rank that dies ends all with its status" "rank 2: a bad input"
ends 66 all "ranks that all find the same say it once" "rank 0: what every rank finds"
ends 78 agree "all ranks agree that one failed" "rank 2: what the last rank found"
ends 73 exit "a rank that exits with a status ends all" ""
ends 139 signal "a rank that crashes ends all" ""
run 70 "our own mistake" ranks 3 "$test" bug
has err 'rank 2: internal error at .*: a mistake' "says where"
run 70 "sizes that do not match" ranks 3 "$test" size
CAIRN_COMM_TIMEOUT=1; export CAIRN_COMM_TIMEOUT
ends 75 hang "a rank that hangs" \
	"rank 0: group world of 3, as its rank 0: broadcast, call 3, 2000 bytes: waited 1 s for the other ranks (CAIRN_COMM_TIMEOUT)"
CAIRN_COMM_TIMEOUT=soon
run 64 "a timeout that is no number" ranks 2 "$test"
unset CAIRN_COMM_TIMEOUT

run 69 "a launcher that says 3 where MPI says 2" ranks 2 env OMPI_COMM_WORLD_SIZE=3 "$test"
has err 'launcher started 3 ranks .*, but MPI knows of 2' "says so"
run 69 "another MPI's launcher" env PMI_SIZE=2 PMI_RANK=0 "$test"
run 69 "a size without a rank" env OMPI_COMM_WORLD_SIZE=2 "$test"
has err 'OMPI_COMM_WORLD_RANK is not set' "says so"
cp "$test" alone
run 69 "a program without MPI under a launcher" ranks 2 ./alone
has err 'launcher started 2 ranks .*comm_mpi.so is not there' "says so"
run 0 "one rank of it needs none" ranks 1 ./alone quick
tap_done
