#!/bin/sh
# hot.sh: a run in memory and its copy on a disk; memory that is lost, copies that are cut short, disks that are full.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
hot=$CAIRN_ROOT/pipelines/hot.sh CAIRN=$(command -v cairn)
export CAIRN
memory=$(mktemp -d /dev/shm/cairn-test.XXXXXX 2>/dev/null || mktemp -d)
trap 'rm -rf "$memory" "$TEST_TMP"' EXIT
digests() { cairn inspect "$1" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }
steps() { ( cd "$1" && find . -maxdepth 1 -name 'step-*' | sed 's,^./,,' | sort | xargs ); }
whole() { # whole DIR: every checkpoint under its name is one
	for c in "$1"/checkpoints/step-*; do
		case $c in *.copy | *.new | *.json) continue ;; esac
		cairn inspect "$c" --verify >/dev/null 2>&1 || return 1
	done
}
tiny_model start; tiny_data; tiny_recipe >r.yaml
key=checkpointing.checkpoint_dir
run 0 "the run, on disk" sh "$CAIRN_ROOT/pipelines/grpo.sh" r.yaml $key=plain grpo.max_num_steps=6

run 0 "in memory, with a copy every 2 steps" sh "$hot" keep 2 grpo r.yaml $key="$memory/a" grpo.max_num_steps=6
is "$(digests keep/checkpoints/step-000006)" "$(digests plain/checkpoints/step-000006)" "the last step is there, with the same bits"
whole keep; ok $? "and every copy is whole"
is "$(steps keep/samples)" "$(steps "$memory/a/samples")" "with samples"
is "$(steps keep/validation)" "$(steps "$memory/a/validation")" "and validations"
is "$(cairn inspect keep --jsonl | cksum)" "$(cairn inspect plain --jsonl | cksum)" "and the same metrics"
[ ! -e "$memory/a/held" ] && [ -z "$(find keep -name '*.copy' -o -name '*.new')" ]; ok $? "nothing is left of the copying"

rm -rf "${memory:?}/a"
run 0 "the memory is lost" sh "$hot" keep 2 grpo r.yaml $key="$memory/a" grpo.max_num_steps=6
has err 'from keep, step 6' "and is filled again"
is "$(digests "$memory/a/checkpoints/step-000006")" "$(digests plain/checkpoints/step-000006)" "with the same"

# Another node had gone on; this one's memory is behind.
mkdir -p keep2
CAIRN_STOP_AFTER=3 run 0 "three steps here" sh "$hot" keep2 1 grpo r.yaml $key="$memory/b" grpo.max_num_steps=6
cp -r "$memory/b" behind
CAIRN_STOP_AFTER=5 run 0 "two more" sh "$hot" keep2 1 grpo r.yaml $key="$memory/b" grpo.max_num_steps=6
rm -rf "${memory:?}/b"; mv behind "$memory/b"
run 0 "the last one from a memory that is behind" sh "$hot" keep2 1 grpo r.yaml $key="$memory/b" grpo.max_num_steps=6
has err 'from keep2, step 5' "takes the copy"
is "$(digests keep2/checkpoints/step-000006)" "$(digests plain/checkpoints/step-000006)" "the same bits"

# Killed at any time, in the middle of a copy too, with the memory lost or not.  A slow cp makes copies long.
mkdir slow
printf '#!/bin/sh\ncase "$*" in "-r "*/held/*) sleep 0.4; mkdir -p "$3"; echo x >"$3/manifest.json"; touch "%s/copying"; sleep 0.6; rm -r "$3" ;; esac\nexec %s "$@"\n' \
	"$TEST_TMP" "$(command -v cp)" >slow/cp
chmod +x slow/cp
bad=0 in_copy=0
for turn in 1 2 3; do
	rm -f copying
	PATH=$TEST_TMP/slow:$PATH setsid sh "$hot" keep3 1 grpo r.yaml $key="$memory/c" grpo.max_num_steps=6 >out 2>err &
	pid=$!
	while [ ! -e copying ] && kill -0 $pid 2>/dev/null; do sleep 0.1; done
	# All of it, as a node that is lost.
	for p in $(ps -e -o pid=,args= | awk -v m="$memory/c" 'index($0, m) { print $1 }'); do
		kill -KILL "$p" 2>/dev/null
	done
	kill -KILL "-$pid" 2>/dev/null
	wait $pid 2>/dev/null
	[ -e copying ] && [ -n "$(find keep3/checkpoints -name '*.copy')" ] && in_copy=$((in_copy + 1))
	whole keep3 || bad=1
	[ $((turn % 2)) -eq 1 ] || rm -rf "${memory:?}/c"
done
ok $bad "killed three times: every copy under its name is whole"
[ $in_copy -gt 0 ]; ok $? "$in_copy times in the middle of one"
run 0 "run again" sh "$hot" keep3 1 grpo r.yaml $key="$memory/c" grpo.max_num_steps=6
is "$(digests keep3/checkpoints/step-000006)" "$(digests plain/checkpoints/step-000006)" "the same bits"
[ -z "$(find keep3 -name '*.copy' -o -name '*.new')" ]; ok $? "nothing is left of the copies that were cut short"

# Asked to stop, it copies what is newest, whatever EVERY says.
sh "$hot" keep4 100 grpo r.yaml $key="$memory/d" grpo.max_num_steps=100000 >out 2>err &
pid=$!
for _ in $(seq 100); do [ ! -e "$memory/d/checkpoints/step-000003/manifest.json" ] || break; sleep 0.1; done
kill -TERM $pid
wait $pid; rc=$?
is $rc 143 "TERM: ends with 143"
is "$(cairn inspect keep4 --latest --step)" "$(cairn inspect "$memory/d" --latest --step)" "and the newest is in the copy"
sleep 1
is "$(ps -e -o args= | grep -c "[c]heckpoint_dir=$memory/d")" 0 "nothing of it goes on"

# Copies that do not work are said; the run goes on, and ends with 74.
mkdir full
printf '#!/bin/sh\ncase "$*" in "-r "*keep5/*) echo "cp: no space left" >&2; exit 1 ;; esac\nexec %s "$@"\n' "$(command -v cp)" >full/cp
chmod +x full/cp
PATH=$TEST_TMP/full:$PATH run 74 "a disk that is full" sh "$hot" keep5 2 grpo r.yaml $key="$memory/e" policy.model_name="$memory/d/checkpoints/step-000000" grpo.max_num_steps=3
has err 'keep5: step 3 could not be copied' "is said"
run 64 "every 0 steps" sh "$hot" keep 0 grpo r.yaml
run 64 "no recipe" sh "$hot" keep 1 grpo
run 64 "no such script" sh "$hot" keep 1 eval r.yaml
( exec 8>keep/lock; flock 8; run 75 "another one copies to it" sh "$hot" keep 2 grpo r.yaml $key="$memory/a"; [ "$got" -eq 75 ] ); ok $? "is kept out"
tap_done
