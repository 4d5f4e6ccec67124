# What the pipelines share.  A run is a directory; its state is files, so running a script again
# continues it, and killing it loses at most the step in hand.
# shellcheck shell=sh

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
CAIRN=${CAIRN:-}
if [ -z "$CAIRN" ]; then
	for c in "$here/../bin/cairn" "$here/../../../bin/cairn"; do
		[ -x "$c" ] && CAIRN=$c && break
	done
fi
CAIRN=${CAIRN:-cairn}

say() { [ "${quiet:-0}" = 1 ] || printf '%s\n' "$*" >&2; }

# cairn COMMAND...: a peer that was lost, or a lock that is held (75), may be gone the next time.  The lock of the run (9) is the
# script's own: a program that outlives it does not hold it.
cairn() {
	for wait in 1 5 20; do
		"$CAIRN" "$@" 9>&- && return 0
		rc=$?
		[ $rc -eq 75 ] || return $rc
		sleep $wait
	done
	"$CAIRN" "$@" 9>&-
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

# start_run ALGORITHM RECIPE [key=value ...]: fix the recipe of the run in RUN/recipe.yaml and leave its names in
# $run and $recipe.  A run that is there keeps its recipe; another one under the same name is refused.
start_run() {
	algorithm=$1 given=$2; shift 2
	run=$(cairn inspect "$given" "$@" --get checkpointing.checkpoint_dir)
	recipe=$run/recipe.yaml
	mkdir -p "$run/logs" "$run/checkpoints"
	lock_run
	of_algorithm "$algorithm"
	cairn inspect "$given" "$@" >"$run/recipe.new"
	if [ -e "$recipe" ] && ! cmp -s "$recipe" "$run/recipe.new"; then
		diff "$recipe" "$run/recipe.new" | head -20 >&2 || true
		rm -f "$run/recipe.new"
		echo "$run: this run has another recipe (above: < its own, > the one given); use another" \
		     "checkpointing.checkpoint_dir, or run on with: $recipe" >&2
		exit 78
	fi
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

# Derived, so that a step that was killed never stands in it twice.
write_metrics() {
	cairn inspect "$run" --jsonl >"$run/metrics.jsonl.tmp"
	mv "$run/metrics.jsonl.tmp" "$run/metrics.jsonl"
}
