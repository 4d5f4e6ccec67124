#!/bin/sh
# grpo.sh RECIPE [key=value ...]: Group Relative Policy Optimization, step by step:
#
#	for each step:  rollout -> score -> train-step;  validate every val_period steps
#
# RUN is checkpointing.checkpoint_dir of the recipe.  Run it again to go on.  CAIRN_SCORE_OPTIONS goes to score as it is
# (--exec CMD, --shuffle-rewards SEED); CAIRN_LAUNCH ("mpirun -n 8") starts what runs over ranks; CAIRN_STOP_AFTER is a step.
set -eu
. "$(dirname "$0")/lib.sh"
case ${1:--} in -*) echo "usage: grpo.sh RECIPE [key=value ...]" >&2; exit 64 ;; esac

start_run grpo "$@"
steps=$(get grpo.max_num_steps)
period=$(get grpo.val_period)
# The words of score behind its samples; with KL the checkpoint that the run began with is one.
kl=$(get loss_fn.reference_policy_kl_penalty)
if [ "$kl" = 0.0 ]; then set --; else set -- --reference "$first"; fi

[ "$(get grpo.val_at_start)" != true ] || validate 0
step=$(cairn inspect "$run" --latest --step)
while :; do
	# Also where an earlier run was killed before it came to this.
	if [ "$period" -gt 0 ] && [ "$step" -gt 0 ] && [ $((step % period)) -eq 0 ]; then validate "$step"; fi
	cairn inspect "$run" --clean >/dev/null
	[ "$step" -eq 0 ] || say "$(cairn inspect "$run" --line)"
	[ "$step" -lt "$steps" ] || break
	stop_here "$step"
	old=$run/checkpoints/$(number "$step")
	step=$((step + 1))
	n=$(number $step)
	make_dir "$run/samples/$n" rollout "$old" -c "$recipe"
	# shellcheck disable=SC2086
	make_dir "$run/scored/$n" score "$run/samples/$n" -c "$recipe" --policy "$old" "$@" ${CAIRN_SCORE_OPTIONS:-}
	make_dir "$run/checkpoints/$n" train-step "$old" "$run/scored/$n" -c "$recipe"
done
[ "$(get grpo.val_at_end)" != true ] || validate "$step"
write_metrics
