#!/bin/sh
# report.sh: the page of a run that is made up: curves by hand, samples of a tiny model, hostile text.
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
report=$CAIRN_ROOT/pipelines/report.sh
CAIRN=$BIN/cairn
export CAIRN

tiny_model start
mkdir -p run/checkpoints run/scored
cp -r start run/checkpoints/step-000000
cp -r start run/checkpoints/step-000003
echo '{"train/loss": 9.5, "train/grad_norm": 70.0}' >run/checkpoints/step-000000/metrics.json
for s in 1 2 3; do
	echo "{\"step\": $s, \"train/grad_norm\": 2.0, \"train/loss\": -$s.5e-1}" >"run/checkpoints/step-00000$s.json"
	mkdir "run/scored/step-00000$s"
	echo "{\"step\": $s, \"train/reward\": $(awk "BEGIN { print ($s - 1) / 2 }"), \"train/accuracy\": null}" >"run/scored/step-00000$s/metrics.json"
done
mv run/checkpoints/step-000003.json run/checkpoints/step-000003/metrics.json
mkdir -p run/validation/step-000002
echo '{"validation/accuracy": 0.25}' >run/validation/step-000002/metrics.json

# Without samples, by hand: steps 1 2 3 lie at x = 70 305 540, the lowest value at y = 162, the highest at 12.
run 0 "a run without samples" sh "$report" run
has out '<polyline points="70\.0,162\.0 305\.0,87\.0 540\.0,12\.0 "/>' "rewards 0, 0.5, 1 are a rising line"
has out '<polyline points="70\.0,12\.0 305\.0,87\.0 540\.0,162\.0 "/>' "losses -0.15, -0.25, -0.35, two of them of removed checkpoints, fall"
has out '<polyline points="70\.0,87\.0 305\.0,87\.0 540\.0,87\.0 "/>' "a constant is a line in the middle"
is "$(grep -c 'step 0' out)" 0 "training numbers of the start are another run's"
has out '<circle cx="305\.0" cy="87\.0" r="2"><title>step 2: 0\.25</title>' "a lone value of validation is a dot"
is "$(grep -c '<svg' out)" 4 "no picture where no step has the number: null and absent are none"
is "$(grep -c '<table' out)" 0 "no table of samples"

# With samples, of which a question is hostile.
printf '%s\n' '{"prompt": "1+1=", "answer": "2"}' '{"prompt": "<script>alert(\"&\")</script>", "answer": "x"}' >q.jsonl
cairn rollout start --prompts q.jsonl -n 2 --step 3 -o samples policy.generation.max_new_tokens=3 >/dev/null 2>err
ok $? "samples"
rm -r run/scored/step-000003
cairn score samples --reward exact=1 --policy start -o run/scored/step-000003 >/dev/null 2>err loss_fn.reference_policy_kl_penalty=0.0
ok $? "scored"
tiny_recipe >run/recipe.yaml
run 0 "a run with samples" sh "$report" run
is "$(grep -c '<table' out)" 2 "best and worst"
is "$(grep -c '^<tr><td>prompt' out)" 8 "four samples each"
has out '&lt;script&gt;alert\(&quot;&amp;&quot;\)&lt;/script&gt;' "text of a sample is text"
is "$(grep -ciE '<script|https?:|<link|src=' out)" 0 "no script, nothing from elsewhere"
has out 'reward_functions' "the recipe"
for tag in figure svg table tr td pre text g p html body; do
	is "$(grep -oE "<${tag}[ >]" out | wc -l)" "$(grep -oF "</$tag>" out | wc -l)" "every $tag ends"
done

run 64 "no run" sh "$report"
run 66 "no such run" sh "$report" nowhere
mkdir empty
run 65 "a folder that is no run" sh "$report" empty
tap_done
