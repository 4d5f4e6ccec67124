#!/bin/sh
# A GRPO run that is killed with kill -9 and run again leaves the very files of the run that was not: at every n-th write, fsync
# and rename of one step in each program, and at seeded random moments in each program and in the script itself.
#
# KILL_LONG=1: at every one of them, and at 50 random moments.  KILL_SEED=N: other moments.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
pipelines=$CAIRN_ROOT/pipelines
long=${KILL_LONG:-0} seed=${KILL_SEED:-1}
if [ "$long" = 1 ]; then steps=3 points=0 moments=7 group=8; else steps=2 points=3 moments=1 group=2; fi
last=step-00000$steps

# Stands for cairn.  The first command line like $KILL_IN dies at its $KILL_AT-th point, or after $KILL_AFTER seconds.
# $COUNT_IN: every command leaves its number of points and its seconds there.
cat >killer <<'END'
#!/bin/sh
if [ -n "${COUNT_IN:-}" ]; then
	t=$(date +%s%N)
	CAIRN_TEST_COUNT=$COUNT_IN/now "$KILL_CAIRN" "$@" || exit
	echo "$(cat "$COUNT_IN/now" 2>/dev/null || echo 0) $(($(date +%s%N) - t)) $*" >>"$COUNT_IN/all"
	rm -f "$COUNT_IN/now"
	exit 0
fi
# shellcheck disable=SC2254
case $* in
${KILL_IN:-none})
	if [ ! -e "$KILL_MARK" ]; then
		: >"$KILL_MARK"
		[ -n "${KILL_AFTER:-}" ] && exec timeout --foreground -s KILL "$KILL_AFTER" "$KILL_CAIRN" "$@"
		CAIRN_TEST_KILL=$KILL_AT exec "$KILL_CAIRN" "$@"
	fi ;;
esac
exec "$KILL_CAIRN" "$@"
END
chmod +x killer
KILL_CAIRN=$(command -v cairn) KILL_MARK=$TEST_TMP/mark CAIRN=$TEST_TMP/killer
export KILL_CAIRN KILL_MARK CAIRN

digests() { "$KILL_CAIRN" inspect "$1/run/checkpoints/$2" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }
# Everything but the logs, which hold times.
same() { diff -r -x logs once/run "$1/run" >difference 2>&1 && [ "$(digests once $last)" = "$(digests "$1" $last)" ]; }
leftovers() { find "$1/run" -name '*.tmp' -o -name '*.old' -o -name '*.lock' -o -name '*.new' -o -name '*.samples' | sort; }
pipeline() { # pipeline DIR [NAME=VALUE...]: grpo.sh there, with this in its environment
	( cd "$1" && shift && exec env "$@" sh "$pipelines/grpo.sh" r.yaml grpo.max_num_steps=$steps ) >out 2>err
}
files() { find "$1/run" -type f ! -path '*/logs/*' -exec sha256sum {} + | sort; }
fresh() {
	rm -rf "$1" && mkdir "$1" && cp -r start train.jsonl held.jsonl "$1" && tiny_recipe >"$1/r.yaml"
}

# -- the run that nobody disturbs ------------------------------------------------------------------------
tiny_data
tiny_model model
cairn export model -o start >out || exit 1
fresh once; fresh again
run 0 "a run of $steps steps" pipeline once
mkdir counts
run 0 "and once more" pipeline again COUNT_IN="$TEST_TMP/counts"
same again; ok $? "gives the same bytes in every file but the logs"
is "$(digests once $last | wc -l)" 2 "weights and optimizer have digests"
[ "$(digests once $last | head -n 1)" != "$(digests once step-000000)" ]; ok $? "and the run changes them"
is "$(leftovers once)" "" "nothing lies about"
[ ! -e once/run/checkpoints/step-000001 ] && [ -e once/run/checkpoints/step-000002 ]; ok $? "step 1 was not kept"
files once >before
run 0 "a finished run is run again" pipeline once
files once | diff before - >difference; ok $? "and nothing changes"

# The step in hand is the second; base is the run up to there.
fresh base
pipeline base KILL_IN='rollout *samples/step-000002' KILL_AT=1
is $? 137 "a program that is killed ends the script with its status"
rm -rf base/run/samples/step-000002.tmp
# And that to where step 1 is to be removed.
cp -r base trained && rm -f mark
pipeline trained KILL_IN='score *-o *validation/step-000002' KILL_AT=1
is $? 137 "so does one of a validation"

# -- killed, and run again ---------------------------------------------------------------------------------
# name | command line | what it makes
cat >programs <<'END'
import-weights|import-weights *|checkpoints/step-000000
rollout|rollout *samples/step-000002|samples/step-000002
score|score *-o *scored/step-000002|scored/step-000002
train-step|train-step *step-000002|checkpoints/step-000002
rollout-validation|rollout *--split validation*|validation/step-000002.samples
score-validation|score *-o *validation/step-000002|validation/step-000002
inspect-clean|inspect *--clean|checkpoints/step-000001
END
phase() { # phase DIR: how far the command had come
	if [ "$name" = inspect-clean ]; then
		if [ -e "$1" ]; then echo before; elif [ -e "$1.old" ]; then echo writing; else echo complete; fi
	elif [ -e "$1/manifest.json" ]; then echo complete
	elif [ -e "$1.tmp/manifest.json" ]; then echo manifest
	elif [ -e "$1.tmp" ]; then echo writing
	else echo before; fi
}
start_of() {
	rm -rf kill mark
	case $name in import-weights) fresh kill ;; inspect-clean) cp -r trained kill ;; *) cp -r base kill ;; esac
}
rerun() { # rerun WHAT: what was killed is run again and is as the undisturbed run
	pipeline kill && same kill && [ -z "$(leftovers kill)" ] && return 0
	echo "# $1: $(cat err) $(head -n 3 difference) $(leftovers kill)"
	return 1
}
uniform() { awk -v s="$seed$1" 'BEGIN { srand(s); rand(); print rand() }'; }
# of NAME FIELD: the most points, or nanoseconds, of its command lines in the undisturbed run
most() {
	while read -r n ns line; do
		# shellcheck disable=SC2254
		case $line in $like) echo "$n $ns" ;; esac
	done <counts/all | sort -n | tail -n 1
}

: >table
while IFS='|' read -r name like makes; do
	# shellcheck disable=SC2046
	set -- $(most)
	count=$1 ns=$2 bad=0 n=0
	[ "$count" -gt 5 ]; ok $? "$name: $count points"
	all=$points; [ "$all" -gt 0 ] || all=$count
	while [ $n -lt "$all" ]; do
		at=$((1 + n * (count - 1) / (all > 1 ? all - 1 : 1))) n=$((n + 1))
		start_of
		pipeline kill KILL_IN="$like" KILL_AT=$at
		[ $? -eq 137 ] || { bad=1; echo "# $name: not killed at $at of $count"; }
		echo "$name $(phase kill/run/$makes)" >>table
		rerun "$name at $at of $count" || bad=1
	done
	ok $bad "$name: killed at $all of them, and run again"
	bad=0 n=0 try=0
	while [ $n -lt $moments ] && [ $try -lt 60 ]; do
		try=$((try + 1))
		after=$(awk -v u="$(uniform $try$count)" -v ns="$ns" 'BEGIN { printf "%.4f", 0.0005 + u * ns / 1e9 }')
		start_of
		if pipeline kill KILL_IN="$like" KILL_AFTER="$after"; then continue; fi # it was done before
		n=$((n + 1))
		echo "$name $(phase kill/run/$makes)" >>table
		rerun "$name after $after s" || bad=1
	done
	[ $n -eq $moments ] || bad=1
	ok $bad "$name: killed at $n random moments, and run again"
done <programs

# The script and all it started, anywhere in the run.
name=script n=0 bad=0
seconds=$(awk '{ s += $2 } END { print s / 1e9 }' counts/all)
while [ $n -lt $group ]; do
	n=$((n + 1))
	after=$(awk -v u="$(uniform 9$n)" -v s="$seconds" 'BEGIN { printf "%.3f", 0.01 + u * s }')
	fresh kill
	( cd kill && timeout -s KILL "$after" sh "$pipelines/grpo.sh" r.yaml grpo.max_num_steps=$steps ) >out 2>err
	echo "$name anywhere" >>table
	rerun "$name after $after s" || bad=1
done
ok $bad "the script and its programs killed at $n random moments, and run again"

echo "# program             before  writing manifest complete anywhere"
sort table | uniq -c | awk '{ n[$2 " " $3] = $1; p[$2] = 1 } END { for (k in p) printf "# %-18s %8d %8d %8d %8d %8d\n", k,
	n[k " before"], n[k " writing"], n[k " manifest"], n[k " complete"], n[k " anywhere"] }' | sort
tap_done
