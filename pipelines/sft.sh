#!/bin/sh
# sft.sh RECIPE [key=value ...]: supervised fine-tuning on data.train.data_path.  A checkpoint at every multiple of
# checkpointing.save_period, and one at every multiple of sft.val_period, for the loss on data.validation.data_path.
#
# RUN is checkpointing.checkpoint_dir of the recipe.  Run it again to go on.  CAIRN_LAUNCH ("mpirun -n 8") starts what runs over
# ranks; CAIRN_STOP_AFTER is a step.
set -eu
. "$(dirname "$0")/lib.sh"
case ${1:--} in -*) echo "usage: sft.sh RECIPE [key=value ...]" >&2; exit 64 ;; esac

start_run sft "$@"
steps=$(get sft.max_num_steps)
period=$(get checkpointing.save_period)
val_period=$(get sft.val_period)
data=$(get data.train.data_path)
held=$(get data.validation.data_path)
[ -n "$data" ] || { echo "$recipe: data.train.data_path: found null, wanted a JSON lines file to learn from" >&2; exit 78; }

# The loss of a step's checkpoint on the validation file, kept beside the run.
held_loss() {
	[ -n "$held" ] || return 0
	v=$run/validation/$(number "$1").json
	[ -e "$v" ] && return 0
	mkdir -p "$run/validation"
	cairn train-step "$run/checkpoints/$(number "$1")" --data "$held" --evaluate -c "$recipe" >"$v.tmp"
	mv "$v.tmp" "$v"
	say "step $1: $(cat "$v")"
}

[ "$(get sft.val_at_start)" != true ] || held_loss 0
step=$(cairn inspect "$run" --latest --step)
while :; do
	# Also where an earlier run was killed before it came to this.
	if [ "$val_period" -gt 0 ] && [ "$step" -gt 0 ] && [ $((step % val_period)) -eq 0 ]; then held_loss "$step"; fi
	cairn inspect "$run" --clean >/dev/null
	[ "$step" -eq 0 ] || say "$(cairn inspect "$run" --line)"
	[ "$step" -lt "$steps" ] || break
	stop_here "$step"
	old=$run/checkpoints/$(number "$step")
	next=$(((step / period + 1) * period))
	if [ -n "$held" ] && [ "$val_period" -gt 0 ]; then
		val=$(((step / val_period + 1) * val_period))
		[ "$next" -le "$val" ] || next=$val
	fi
	[ "$next" -le "$steps" ] || next=$steps
	make_dir "$run/checkpoints/$(number "$next")" train-step "$old" --data "$data" --steps $((next - step)) -c "$recipe"
	step=$next
done
[ "$(get sft.val_at_end)" != true ] || held_loss "$step"
write_metrics
