#!/bin/sh
# eval.sh: pass@k and its standard error against numbers worked by hand from the scored samples.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
eval=$CAIRN_ROOT/pipelines/eval.sh CAIRN=$(command -v cairn)
export CAIRN
tiny_model start; tiny_data
# The reward that is often 1: any digit in the answer.
tiny_recipe | sed 's/- {name: exact.*/- {name: format, weight: 1.0, pattern: "[0-9]"}/; /weight: 0.5/d' >r.yaml
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" out; }

run 0 "pass@1 of one sample each" sh "$eval" start held.jsonl -c r.yaml -o one policy.generation.val_temperature=1.0
is "$(wc -l <out)" 1 "one line"
is "$(field questions)" 4 "four questions"
run 0 "pass@2 of six" sh "$eval" start held.jsonl -k 2 -n 6 -c r.yaml -o six policy.generation.val_temperature=1.0
cp out got
# c of 6 right: 1 - C(6 - c, 2) / C(6, 2) = 1 - (6 - c)(5 - c) / 30
cairn inspect six --jsonl | sed -n 's/^{"prompt_id": \([0-9]*\),.*"reward": \([0-9.]*\).*/\1 \2/p' >rows
is "$(wc -l <rows)" 24 "24 samples"
awk '{ c[$1] += $2 == 1 } END { for (i in c) { p = 1 - (6 - c[i]) * (5 - c[i]) / 30; n++; s += p; q[n] = p }
	for (i = 1; i <= n; i++) v += (q[i] - s / n) ^ 2
	printf "%.6f %.6f\n", s / n, sqrt(v / (n - 1) / n) }' rows >want
cp got out
is "$(field pass@2) $(field standard_error)" "$(cat want)" "is what the formula says: $(cat want)"
awk '$2 == 1 { n++ } END { exit !(n > 0 && n < NR) }' rows; ok $? "some are right, some wrong"
run 0 "again" sh "$eval" start held.jsonl -k 2 -n 6 -c r.yaml policy.generation.val_temperature=1.0
diff out got >difference; ok $? "gives the same"
run 0 "options behind a key" sh "$eval" start held.jsonl policy.generation.val_temperature=1.0 -k 2 -n 6 -c r.yaml -o behind
diff out got >difference && cairn inspect --diff six behind >/dev/null; ok $? "hold as before it"
run 64 "an option that is none" sh "$eval" start held.jsonl -c r.yaml -x
run 64 "an option without its value" sh "$eval" start held.jsonl -c
run 64 "k above n" sh "$eval" start held.jsonl -k 3 -n 2
run 64 "k that is no number" sh "$eval" start held.jsonl -k x
run 64 "no data" sh "$eval" start
run 66 "no checkpoint" sh "$eval" nowhere held.jsonl
run 66 "data that are not there" sh "$eval" start nowhere.jsonl
run 73 "an output that is there" sh "$eval" start held.jsonl -c r.yaml -o one
tap_done
