# Sourced after tap.sh: programs as several ranks on this machine, which may have fewer cores than ranks.
# shellcheck shell=sh

# ranks N COMMAND...: the exit status is that of the first rank that failed.
ranks() {
	ranks_n=$1; shift
	ranks_root=; [ "$(id -u)" -ne 0 ] || ranks_root=--allow-run-as-root
	# shellcheck disable=SC2086
	mpirun -q --oversubscribe $ranks_root --bind-to none --mca pml ob1 --mca btl vader,self \
		--mca btl_vader_single_copy_mechanism none --mca mpi_yield_when_idle 1 --mca orte_base_help_aggregate 1 \
		-n "$ranks_n" "$@"
}

# need_ranks WHAT: goes on where ranks can run, else counts the rest as skipped and ends the test.
need_ranks() {
	if ! command -v mpirun >/dev/null 2>&1; then skip "$1" "mpirun is not here"; tap_done; fi
	if [ ! -e "$BIN/comm_mpi.so" ]; then skip "$1" "built without MPI"; tap_done; fi
}
