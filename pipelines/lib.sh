# What the pipelines share.  A run is a directory; its state is files, so running a script again
# continues it, and killing it loses at most the step in hand.
# shellcheck shell=sh

here=${CAIRN_PIPELINES:-$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)}
CAIRN=${CAIRN:-}
if [ -z "$CAIRN" ]; then
	for c in "$here/../bin/cairn" "$here/../../../bin/cairn"; do
		[ -x "$c" ] && CAIRN=$c && break
	done
fi
CAIRN=${CAIRN:-cairn}

# A script that is asked for help shows its own first comment.
case ${1:-} in -h | --help) awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; exit 0 ;; esac

# Numbers have a point, whatever the language of the user.
awk() { LC_ALL=C command awk "$@"; }

# scratch: a folder for $work that goes when the script ends.
scratch() {
	work=$(mktemp -d) || { echo "${0##*/}: TMPDIR (${TMPDIR:-/tmp}): wanted a directory that can be written" >&2; exit 73; }
	trap 'rm -rf "$work"' EXIT
}

say() { [ "${quiet:-0}" = 1 ] || printf '%s\n' "$*" >&2; }

# One program.  Those that run over ranks are started by CAIRN_LAUNCH ("mpirun -n 8", "srun"), which would eat our standard input.
start_program() {
	case ${CAIRN_LAUNCH:+$1} in
	rollout | score | train-step)
		# shellcheck disable=SC2086
		$CAIRN_LAUNCH "$CAIRN" "$@" </dev/null 9>&- ;;
	*) command "$CAIRN" "$@" 9>&- ;;
	esac
}

# cairn COMMAND...: a peer that was lost, or a lock that is held (75), may be gone the next time.  The lock of the run (9) is the
# script's own: a program that outlives it does not hold it.
cairn() {
	for wait in 1 5 20; do
		start_program "$@" && return 0
		rc=$?
		[ $rc -eq 75 ] || return $rc
		sleep $wait
	done
	start_program "$@"
}

# make_dir DIR COMMAND...: run the command, which makes DIR whole or not at all, unless it is there.
# What it prints on stdout goes to RUN/logs.
make_dir() {
	dir=$1; shift
	[ -e "$dir/manifest.json" ] && return 0
	mkdir -p "$(dirname "$dir")" "$run/logs"
	cairn "$@" -o "$dir" >>"$run/logs/$1.jsonl" || {
		rc=$?
		# Another run of this script was first.
		[ $rc -eq 73 ] && [ -e "$dir/manifest.json" ] || exit $rc
	}
}

number() { printf 'step-%06d' "$1"; }

# get KEY: a value of the effective recipe; nothing for null.
get() { cairn inspect "$recipe" --get "$1"; }

# lock_run: one script at a time works in RUN; it holds the lock until it ends, however it ends.
lock_run() {
	exec 9>"$run/logs/lock"
	command -v flock >/dev/null || return 0
	rc=0
	flock -n -E 75 9 || rc=$?
	# Any other status: a file system without locks.
	[ $rc -ne 75 ] || { echo "$run: another script works in this run; wait for its end" >&2; exit 75; }
}

# of_algorithm NAME: a run is of one algorithm for good.
of_algorithm() {
	if [ -e "$run/algorithm" ]; then
		read -r was <"$run/algorithm"
		[ "$was" = "$1" ] && return 0
		echo "$run: this run was begun by $was.sh; $1.sh wants another checkpointing.checkpoint_dir" >&2
		exit 78
	fi
	echo "$1" >"$run/algorithm.new"
	mv "$run/algorithm.new" "$run/algorithm"
}

# How a model lies over ranks: a run may be given other values from step to step, for every checkpoint loads in every layout.
layout_keys='(tensor_model|expert_tensor|expert_model|pipeline_model|virtual_pipeline_model|context|tensor)_parallel(_size)?'
layout_keys="$layout_keys|num_layers_in_(first|last)_pipeline_stage|sequence_parallel"
same_but_layout() {
	grep -vE "^ *($layout_keys): " "$1" | { grep -vE "^ *($layout_keys): " "$2" | cmp -s - /dev/fd/3; } 3<&0
}

# start_run ALGORITHM RECIPE [key=value ...]: fix the recipe of the run in RUN/recipe.yaml and leave its names in
# $run and $recipe.  A run that is there keeps its recipe, but for the layout; another one under the same name is refused.
start_run() {
	algorithm=$1 given=$2; shift 2
	run=$(cairn inspect "$given" "$@" --get checkpointing.checkpoint_dir)
	recipe=$run/recipe.yaml
	mkdir -p "$run/logs" "$run/checkpoints"
	lock_run
	of_algorithm "$algorithm"
	cairn inspect "$given" "$@" >"$run/recipe.new"
	if [ -e "$recipe" ] && ! same_but_layout "$recipe" "$run/recipe.new"; then
		diff "$recipe" "$run/recipe.new" | head -20 >&2 || true
		rm -f "$run/recipe.new"
		echo "$run: this run has another recipe (above: < its own, > the one given); use another" \
		     "checkpointing.checkpoint_dir, or run on with: $recipe" >&2
		exit 78
	fi
	[ ! -e "$recipe" ] || cmp -s "$recipe" "$run/recipe.new" || say "$run goes on in another layout"
	mv "$run/recipe.new" "$recipe"
	first=$run/checkpoints/$(number 0)
	[ -e "$first/manifest.json" ] || first_checkpoint
}

# trained CKPT: whether steps or an optimizer's state are in it.
trained() {
	facts=$(cairn inspect "$1" --json) || exit $?
	case $facts in *'"step": 0,'*'"optimizer": null,'*) return 1 ;; esac
}

# The model that the run starts from: of a trained checkpoint the weights, for another run's optimizer, counters and place in the
# data are not this one's; an untrained one as it is; anything else through import-weights.
first_checkpoint() {
	model=$(get policy.model_name)
	[ -n "$model" ] || { echo "$recipe: policy.model_name: found null, wanted a model to start from" >&2; exit 78; }
	if [ -e "$model/manifest.json" ] && [ "$(get cairn.keep_training_state)" != true ] && trained "$model"; then
		say "$model was trained before: this run begins with its weights and a new optimizer" \
		    "(cairn.keep_training_state=true goes on with the old one)"
		cairn reshard "$model" --weights-only --like "$model" -o "$first" >>"$run/logs/reshard.jsonl"
	elif [ -e "$model/manifest.json" ]; then
		rm -rf "$first.copy"
		cp -r "$model" "$first.copy"
		find "$first.copy" -type f -exec sync {} +
		mv -T "$first.copy" "$first"
	else
		cairn import-weights "$model" -o "$first" >>"$run/logs/import-weights.jsonl"
	fi
}

# validate STEP: the scored answers of that step's checkpoint to the validation questions.
validate() {
	v=$run/validation/$(number "$1")
	if [ -e "$v/manifest.json" ]; then rm -rf "$v.samples"; return 0; fi
	c=$run/checkpoints/$(number "$1")
	make_dir "$v.samples" rollout "$c" -c "$recipe" --split validation --step "$1"
	make_dir "$v" score "$v.samples" -c "$recipe"
	rm -rf "$v.samples"
}

# begin COMMAND...: beside this script, in a process group of its own, $group; end_group [SECONDS] stops all of it, by force where
# it has not ended then.
begin() { setsid "$@" 8>&- 9>&- & group=$!; }
end_group() {
	kill -TERM "-$group" 2>/dev/null || kill -TERM "$group" 2>/dev/null || return 0
	left=$((${1:-20} * 5))
	while kill -0 "-$group" 2>/dev/null; do
		[ $left -gt 0 ] || { kill -KILL "-$group" 2>/dev/null; break; }
		left=$((left - 1))
		sleep 0.2
	done
}

# newest DIR: the step of the newest complete checkpoint of that run; -1 where there is none.
newest() {
	for c in "$1"/checkpoints/step-*[0-9]; do [ ! -e "$c/manifest.json" ] || echo "${c##*/step-}"; done |
		awk 'BEGIN { n = -1 } $1 + 0 > n { n = $1 + 0 } END { print n }'
}

# stop_here STEP: ends the script where CAIRN_STOP_AFTER wants no further step now.
stop_here() {
	[ -n "${CAIRN_STOP_AFTER:-}" ] && [ "$1" -ge "$CAIRN_STOP_AFTER" ] || return 0
	write_metrics
	exit 0
}

# Derived, so that a step that was killed never stands in it twice.
write_metrics() {
	cairn inspect "$run" --jsonl >"$run/metrics.jsonl.tmp"
	mv "$run/metrics.jsonl.tmp" "$run/metrics.jsonl"
}
