#!/bin/sh
# job.sbatch with mpirun in place of srun: ranks, the time limit and the queue, going on with other numbers, node memory.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
need_ranks "jobs over several ranks"
job=$CAIRN_ROOT/pipelines/slurm/job.sbatch CAIRN_PIPELINES=$CAIRN_ROOT/pipelines CAIRN=$(command -v cairn)
export CAIRN CAIRN_PIPELINES
unset CAIRN_LAUNCH
memory=$(mktemp -d /dev/shm/cairn-test.XXXXXX 2>/dev/null || mktemp -d)
trap 'rm -rf "$memory" "$TEST_TMP"' EXIT
digests() { cairn inspect "$1" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }

# Slurm as far as the script knows it.  sbatch: a copy of the script somewhere else, its variables, and another start as long as it asks
# for one, 5 at most; USR1 reaches the batch shell alone, when $END_AT exists in the first start or after $END_AFTER seconds.
mkdir slurm
cat >slurm/srun <<'END'
#!/bin/sh
. "$CAIRN_ROOT/tests/lib/ranks.sh"
echo "$SLURM_NTASKS $SLURM_MPI_TYPE $SLURM_KILL_BAD_EXIT ${SRUN_CPUS_PER_TASK:-} $*" >>"$FAKE/srun"
ranks "$SLURM_NTASKS" "$@"
END
cat >slurm/scontrol <<'END'
#!/bin/sh
echo "$*" >>"$FAKE/scontrol"
[ "$1" != requeue ] || touch "$FAKE/again"
END
cat >slurm/sbatch <<'END'
#!/bin/sh
nodes=1 tasks=1
while :; do
	case $1 in
	--nodes=*) nodes=${1#*=} ;;
	--ntasks-per-node=*) tasks=${1#*=} ;;
	--cpus-per-task=*) export SLURM_CPUS_PER_TASK="${1#*=}" ;;
	*) break ;;
	esac
	shift
done
mkdir -p "$FAKE/spool"
cp "$1" "$FAKE/spool/slurm_script"; shift
export SLURM_JOB_ID=7 SLURM_NTASKS=$((nodes * tasks)) SLURM_JOB_NUM_NODES=$nodes SLURM_SUBMIT_DIR="$PWD"
for start in 0 1 2 3 4; do
	[ $start -eq 0 ] || export SLURM_RESTART_COUNT=$start
	rm -f "$FAKE/again"
	sh "$FAKE/spool/slurm_script" "$@" &
	pid=$!
	if [ $start -eq 0 ] && [ -n "${END_AT:-}" ]; then
		while [ ! -e "$END_AT" ] && kill -0 $pid 2>/dev/null; do sleep 0.1; done
		kill -"${END_BY:-USR1}" $pid
	fi
	wait $pid
	rc=$?
	[ -e "$FAKE/again" ] || exit $rc
	[ -z "${NODE_LOST:-}" ] || rm -rf "$NODE_LOST"
done
exit $rc
END
chmod +x slurm/*
PATH=$TEST_TMP/slurm:$PATH FAKE=$TEST_TMP
export PATH FAKE

tiny_model start; tiny_data
tiny_recipe | grep -v '^sft:' | sed 's/keep_top_k: 1/keep_top_k: null/; s/^policy:/&\n  megatron_cfg: {enabled: true, optimizer: {lr: 1.0e-3}, scheduler: {lr_warmup_iters: 0}}/' >r.yaml
key=checkpointing.checkpoint_dir tp=policy.megatron_cfg.tensor_model_parallel_size

run 0 "grpo on 2 nodes of 2 tasks, TP 2" sbatch --nodes=2 --ntasks-per-node=2 --cpus-per-task=3 "$job" grpo r.yaml $tp=2
has err '^job 7, start 1: 4 ranks on 2 nodes, run$' "the log begins with what it is"
has srun '^4 pmix 1 3 .*cairn train-step ' "srun starts the ranks"
is "$(cairn inspect run --latest --step)" 3 "all steps"
[ ! -e scontrol ]; ok $? "nothing is queued again"
run 0 "the same line again" sbatch --nodes=2 --ntasks-per-node=2 --cpus-per-task=3 "$job" grpo r.yaml $tp=2

END_AT=$TEST_TMP/cut/samples/step-000002/manifest.json run 0 "a time limit in step 2" sbatch --nodes=1 --ntasks-per-node=4 "$job" grpo r.yaml $tp=2 $key=cut
is "$(cat scontrol)" "requeue 7" "is queued again, once"
has err '^job 7, start 2: ' "begins again"
is "$(digests cut/checkpoints/step-000003)" "$(digests run/checkpoints/step-000003)" "and ends with the bits of the run that was not cut"
sleep 1
is "$(ps -e -o args= | grep -c "[c]heckpoint_dir=cut")" 0 "nothing of it goes on"

rm -f scontrol
CAIRN_STOP_AFTER=0 sbatch "$job" grpo r.yaml $key=stuck 2>err
printf '%s\n' '#!/bin/sh' 'touch "$FAKE/hanging"' 'exec sleep 60' >hang
END_AT=hanging CAIRN_LAUNCH='sh hang' run 75 "a time in which nothing is finished" sbatch "$job" grpo r.yaml $key=stuck
has err 'wanted a longer --time' "says so"
[ ! -e scontrol ]; ok $? "is not queued again"
END_AT=$TEST_TMP/gone/samples/step-000002/manifest.json END_BY=TERM run 143 "preemption, scancel" sbatch --ntasks-per-node=2 "$job" grpo r.yaml $key=gone
[ ! -e scontrol ]; ok $? "are Slurm's to queue again"
CAIRN_STOP_AFTER=2 run 0 "step 2 on 3 tasks" sbatch --ntasks-per-node=3 "$job" grpo r.yaml $key=gone
run 0 "step 3 on one" sbatch "$job" grpo r.yaml $key=gone
is "$(cairn inspect gone --latest --step)" 3 "all steps"

# -- node memory -----------------------------------------------------------------------------------------------
END_AT=$memory/a/checkpoints/step-000001/manifest.json NODE_LOST=$memory/a CAIRN_HOT=$TEST_TMP/keep CAIRN_HOT_EVERY=5 \
	run 0 "in node memory, the limit in step 2, and another node" sbatch --ntasks-per-node=4 "$job" grpo r.yaml $tp=2 $key="$memory/a"
has err "^$memory/a: from $TEST_TMP/keep, step [12]" "goes on from the copy"
is "$(digests keep/checkpoints/step-000003)" "$(digests run/checkpoints/step-000003)" "to the same bits"
CAIRN_HOT=$TEST_TMP/keep run 64 "in the memory of two nodes" sbatch --nodes=2 "$job" grpo r.yaml $key="$memory/b"
has err 'node memory are for one node; several need' "says what is wanted"

sed '/^grpo:/,/^loss_fn:/{/^loss_fn:/!d}; /^loss_fn/d' r.yaml >sft.yaml
echo 'sft: {max_num_steps: 2, val_at_start: false}' >>sft.yaml
run 0 "sft on two tasks" sbatch --ntasks-per-node=2 "$job" sft sft.yaml $key=taught
is "$(cairn inspect taught --latest --step)" 2 "two steps"
run 64 "no algorithm" sbatch "$job" r.yaml
CAIRN_PIPELINES=/nowhere CAIRN=/nowhere/cairn run 66 "no pipelines" sbatch "$job" grpo r.yaml
has err 'set CAIRN_PIPELINES' "says what to set"
tap_done
