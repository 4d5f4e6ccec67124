#!/bin/sh
# hot.sh DURABLE EVERY SCRIPT RECIPE [key=value ...]: a run in the memory of one node, and a copy of it on a disk that stays.
#
#	pipelines/hot.sh /shared/runs/a 10 grpo recipe.yaml checkpointing.checkpoint_dir=/dev/shm/a
#
# SCRIPT is grpo or sft.  Beside it, whenever the newest checkpoint has passed another EVERY steps, it is copied to DURABLE, with what
# the run has of the steps up to it; at the end, and at TERM, INT or USR1, the newest in any case.  A copy appears under its name once
# it is whole, on the disk and verified.  The script never waits for a copy.
# Run it again to go on: from memory, or from DURABLE where that is further, as on another node.
#
# Memory has to hold what the run keeps and two checkpoints more.  Several nodes have no memory in common: their checkpoints need a file
# system that all share.
set -eu
. "$(dirname "$0")/lib.sh"
usage() { echo "usage: hot.sh DURABLE EVERY grpo|sft RECIPE [key=value ...]" >&2; exit 64; }
[ $# -ge 4 ] || usage
durable=$1 every=$2 script=$3 given=$4
shift 3
case $every in '' | 0* | *[!0-9]*) usage ;; esac
case $script in grpo | sft) ;; *) usage ;; esac
case $given in -*) usage ;; esac

memory=$(cairn inspect "$@" --get checkpointing.checkpoint_dir)
mkdir -p "$durable/checkpoints" "$(dirname "$memory")"
exec 8>"$durable/lock"
if command -v flock >/dev/null; then
	rc=0
	flock -n -E 75 8 || rc=$?
	[ $rc -ne 75 ] || { echo "$durable: another script copies to this run; wait for its end" >&2; exit 75; }
fi

# What copies that were cut short have left.
find "$durable" -mindepth 1 -maxdepth 2 \( -name '*.copy' -o -name '*.new' \) -exec rm -rf {} +

# put FROM TO: a copy of a file or folder under the name TO, whole, on the disk, or not there.
put() {
	rm -rf "$2.copy"
	cp -r "$1" "$2.copy" && find "$2.copy" -exec sync {} + && { [ ! -d "$2" ] || rm -rf "$2"; } && mv -T "$2.copy" "$2" &&
		sync "$(dirname "$2")"
}

# put_new FOLDER LAST: what the run has of steps up to LAST in one of its folders and DURABLE has not.
put_new() {
	for f in "$memory/$1"/step-*; do
		step=${f##*/step-} step=${step%.json}
		case $step in *[!0-9]*) continue ;; esac
		[ "${f%.json}" != "$f" ] || [ -e "$f/manifest.json" ] || continue
		[ "$(echo "$step" | awk '{ print $1 + 0 }')" -le "$2" ] || continue
		[ -e "$durable/$1/${f##*/}" ] && continue
		mkdir -p "$durable/$1"
		put "$f" "$durable/$1/${f##*/}" || return 1
	done
}

# DURABLE keeps what the run keeps, and what is newest; of the others the metrics stay, as in the run.
drop_old() {
	for c in "$durable"/checkpoints/step-*[0-9]; do
		name=${c##*/}
		[ -e "$memory/checkpoints/$name.json" ] && [ ! -e "$memory/checkpoints/$name" ] && [ "$name" != "$(number "$1")" ] || continue
		put "$memory/checkpoints/$name.json" "$c.json" && rm -rf "$c"
	done
}

# copy STEP: links hold the checkpoint while it is copied, for the run may remove it in the meantime.  It comes last: where it is
# there, all that led to it is there.
copy() {
	name=$(number "$1") held=$memory/held to=$durable/checkpoints/$(number "$1")
	rm -rf "$held" "$to.new"
	mkdir -p "$held"
	cp -al "$memory/checkpoints/$name" "$held/$name" 2>/dev/null && [ -e "$held/$name/manifest.json" ] || return 1
	put "$memory/recipe.yaml" "$durable/recipe.yaml" && put "$memory/algorithm" "$durable/algorithm" || return 1
	[ "$1" -eq 0 ] || [ -e "$durable/checkpoints/$(number 0)" ] || put "$memory/checkpoints/$(number 0)" "$durable/checkpoints/$(number 0)" || return 1
	for folder in samples scored validation; do put_new $folder "$1" || return 1; done
	for f in "$memory"/checkpoints/step-*.json; do
		[ ! -e "$f" ] || [ -e "$durable/checkpoints/${f##*/}" ] || put "$f" "$durable/checkpoints/${f##*/}" || return 1
	done
	for f in logs metrics.jsonl; do [ ! -e "$memory/$f" ] || put "$memory/$f" "$durable/$f" || return 1; done
	put "$held/$name" "$to.new" && cairn inspect "$to.new" --verify >/dev/null && mv -T "$to.new" "$to" &&
		sync "$durable/checkpoints" || return 1
	rm -rf "$held"
	say "$to: copied"
	drop_old "$1"
}

# try_copy STEP: what does not work now is tried again later; the run goes on.
try_copy() {
	copy "$1" && return 0
	[ ! -e "$memory/checkpoints/$(number "$1")/manifest.json" ] || echo "$durable: step $1 could not be copied" >&2
	rm -rf "$memory/held" "$durable/checkpoints/$(number "$1").new"
	return 1
}

# The copy is taken where it is further than memory.
restore() {
	there=$(newest "$durable") here_now=$(newest "$memory")
	[ "$there" -gt "$here_now" ] || return 0
	say "$memory: from $durable, step $there"
	[ ! -e "$memory" ] || lock_memory
	rm -rf "$memory" "$memory.restore"
	mkdir -p "$memory.restore"
	for f in recipe.yaml algorithm logs checkpoints samples scored validation; do
		[ ! -e "$durable/$f" ] || cp -a "$durable/$f" "$memory.restore/"
	done
	mv -T "$memory.restore" "$memory"
}
lock_memory() { run=$memory; mkdir -p "$run/logs"; lock_run; }

stopped=''
trap 'stopped=143' TERM
trap 'stopped=130' INT
trap 'stopped=138' USR1
restore
exec 9>&-
begin "$here/$script.sh" "$@"
tried=-1
while [ -z "$stopped" ] && kill -0 "$group" 2>/dev/null; do
	n=$(newest "$memory") last=$(newest "$durable")
	if [ "$n" -ne "$tried" ] && [ "$n" -gt "$last" ] && { [ "$last" -lt 0 ] || [ $((n / every)) -gt $((last / every)) ]; }; then
		tried=$n
		try_copy "$n" || true
	fi
	sleep 1 8>&- &
	wait $! || true
done
rc=0
[ -z "$stopped" ] || end_group
wait "$group" || rc=$?
n=$(newest "$memory")
if [ "$n" -ge 0 ] && [ ! -e "$durable/checkpoints/$(number "$n")" ]; then try_copy "$n" || [ $rc -ne 0 ] || rc=74; fi
exit "${stopped:-$rc}"
