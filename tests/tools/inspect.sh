#!/bin/sh
# inspect: recipes, checkpoints, runs with best, latest and retention; refusals.
. "$CAIRN_ROOT/tests/lib/tap.sh"
demo=$CAIRN_ROOT/pipelines/recipes
cairn import-weights --init "$demo/demo-model.json" --tokenizer bytes --chat-template plain --seed 1 -o ck >/dev/null
cairn import-weights --init "$demo/demo-model.json" --tokenizer bytes --chat-template plain --seed 2 -o other >/dev/null

run 0 "a recipe" cairn inspect "$demo/demo-grpo.yaml" grpo.max_num_steps=7
has out 'max_num_steps: 7' "is printed with the override in it"
cp out effective.yaml
run 0 "and loads again" cairn inspect effective.yaml
ok "$(cmp -s out effective.yaml; echo $?)" "to the same"
is "$(cairn inspect "$demo/demo-grpo.yaml" --get policy.optimizer.kwargs.lr)" "0.0003" "--get of a real"
is "$(cairn inspect "$demo/demo-grpo.yaml" --get policy.model_name)" "" "--get of null is nothing"
run 78 "--get of an unknown key" cairn inspect "$demo/demo-grpo.yaml" --get policy.precison
has err "policy.precision" "names the nearest"
run 0 "--explain" cairn inspect --explain grpo.seed
has out "grpo.seed" "explains"

run 0 "a checkpoint" cairn inspect ck --json
has out '"parameters": 820736' "its parameters"
run 0 "--verify" cairn inspect ck --verify
run 0 "--tensor" cairn inspect ck --tensor model.norm.weight --json
has out '"min": 1.0, "max": 1.0' "its statistics"
run 65 "--tensor of none" cairn inspect ck --tensor model.none
run 0 "--diff with itself" cairn inspect --diff ck ck
run 1 "--diff with another" cairn inspect --diff ck other
has out "^tensor +model.embed_tokens.weight$" "names what differs"
run 0 "--history" cairn inspect ck --history
has out "import-weights" "names the program"
run 66 "nothing there" cairn inspect nowhere
run 64 "two paths without --diff" cairn inspect ck other
mkdir empty
run 65 "a folder that is nothing" cairn inspect empty
cairn inspect ck >/dev/full 2>err; is "$?" 74 "a full device"

# A run made up: best, latest, retention.  The tie at 0.7 goes to the newer; NaN is never best; 10 is newer than 9.
mkdir -p r/checkpoints r/validation
for s in 0 9 10 20 30 40; do
	n=$(printf 'step-%06d' $s); cp -r ck "r/checkpoints/$n"; mkdir "r/validation/$n"
done
echo '{"validation/accuracy": 0.5}' >r/validation/step-000010/metrics.json
echo '{"validation/accuracy": 0.7}' >r/validation/step-000020/metrics.json
echo '{"validation/accuracy": 0.7}' >r/validation/step-000030/metrics.json
echo '{"validation/accuracy": null}' >r/validation/step-000040/metrics.json
cat >r/recipe.yaml <<'S'
checkpointing: {metric_name: "val:accuracy", keep_top_k: 1, save_period: 10}
S
is "$(cairn inspect r --best)" "r/checkpoints/step-000030" "best: ties go to the newer, null is never best"
is "$(cairn inspect r --latest --step)" "40" "latest"
rm -rf r/checkpoints/step-000020 r/checkpoints/step-000030 r/checkpoints/step-000040
is "$(cairn inspect r --latest --step)" "10" "latest by number: 10 is newer than 9"
for s in 20 30 40; do cp -r ck "r/checkpoints/$(printf 'step-%06d' $s)"; done
echo '{"step": 10, "train/loss": 0.25}' >r/checkpoints/step-000010/metrics.json
mkdir r/checkpoints/step-000005.old && echo '{"train/loss": 0.5}' >r/checkpoints/step-000005.old/metrics.json && touch r/checkpoints/step-000005.old/x
run 0 "--clean --dry-run" cairn inspect r --clean --dry-run
ok "$([ -e r/checkpoints/step-000009 ]; echo $?)" "removes nothing"
run 0 "--clean" cairn inspect r --clean
# shellcheck disable=SC2012
is "$(ls r/checkpoints | tr '\n' ' ')" "step-000000 step-000005.json step-000010.json step-000030 step-000040 " \
	"keeps the start, the best and the latest, and the metrics of those that had any"
run 0 "--jsonl" cairn inspect r --jsonl
has out '"step": 5, "train/loss": 0.5' "metrics of a step whose removal was killed"
has out '"step": 10, "validation/accuracy": 0.5, "train/loss": 0.25' "metrics of a step that is removed"
has out '"step": 30, "validation/accuracy": 0.7' "metrics of a step"
run 0 "the table" cairn inspect r
tap_done
