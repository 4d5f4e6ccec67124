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
run 0 "a layout in words" cairn inspect ck
has out '^layout +one rank$' "of one rank"
cairn reshard ck -o cut --tp 2 --stages 1,3 --dp 2 >/dev/null
run 0 "--layout" cairn inspect cut --layout
has out '^tp 2, pp 2 \(1,3\), dp 2: 8 ranks, 8 files$' "of eight"
is "$(grep -A 2 'weights-.*-0005' out | sed 1d | tr '\n' '|' | sed 's/: [0-9]* boxes.*//')" \
	"  rank 5: tp 1, cp 0, dp 0, stage 1|  layers 1-3; model.norm.weight" "a rank of the second stage, and its layers"
run 0 "--layout --json" cairn inspect cut --layout --json
has out '"words": "tp 2, pp 2 \(1,3\), dp 2"' "has the words too"
cat >moe.json <<'S'
{"model_type": "qwen3_moe", "vocab_size": 20, "hidden_size": 16, "intermediate_size": 24, "moe_intermediate_size": 8,
 "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "head_dim": 4, "max_position_embeddings": 64, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": true}
S
cairn import-weights --init moe.json --tokenizer none -o moe --ep 2 >/dev/null
run 0 "--layout of experts" cairn inspect moe --layout
is "$(grep -c 'ep 1, edp 0$' out) $(grep -c 'experts 2-3' out)" "1 1" "which rank has which"
run 64 "--layout of a recipe" cairn inspect "$demo/demo-grpo.yaml" --layout
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
has out '"step": 10, "train/loss": 0.25, "validation/accuracy": 0.5' "metrics of a step that is removed"
has out '"step": 30, "validation/accuracy": 0.7' "metrics of a step"
run 0 "the table" cairn inspect r
# -- what killed writers left, links, and being killed -------------------------------------------------------------
mkdir -p keep linked/checkpoints && touch keep/precious
cp r/recipe.yaml linked/
for s in 0 10; do cp -r ck "linked/checkpoints/$(printf 'step-%06d' $s)"; done
cp -r ck elsewhere && ln -s "$PWD/elsewhere" linked/checkpoints/step-000005
ln -s "$PWD/keep" linked/checkpoints/step-000000/link
mkdir -p linked/samples/step-000003.tmp linked/samples/step-000004.tmp
sh -c 'exit 0' & dead=$!
wait $dead
printf '{"host": "%s", "pid": %d, "start": 1}\n' "$(hostname)" $dead >linked/samples/step-000003.tmp/lock
printf '{"host": "%s", "pid": %d, "start": 0}\n' "$(hostname)" $$ >linked/samples/step-000004.tmp/lock
mkdir linked/checkpoints/step-000007.old && ln -s "$PWD/keep" linked/checkpoints/step-000007.old/hf
run 0 "--clean of links and leftovers" cairn inspect linked --clean
ok "$([ ! -e linked/checkpoints/step-000005 ] && [ -e elsewhere/manifest.json ]; echo $?)" "a link is removed, what it points to stays"
ok "$([ ! -e linked/checkpoints/step-000007.old ] && [ -e keep/precious ]; echo $?)" "inside of a leftover too"
ok "$([ ! -e linked/samples/step-000003.tmp ]; echo $?)" "what a dead writer left goes"
ok "$([ -e linked/samples/step-000004.tmp ]; echo $?)" "what a living one writes stays"
has out '"leftovers": \[.*step-000003.tmp' "and it says so"
run 64 "two things at once" cairn inspect linked --latest --clean
mkdir -p bare/checkpoints
run 66 "nothing says what to keep" cairn inspect bare --clean
rm -rf r/checkpoints/step-000099999 && mkdir -p r/checkpoints/step-7 r/checkpoints/step-99999999999999999999 && cp ck/manifest.json r/checkpoints/step-7/
is "$(cairn inspect r --latest --step)" 40 "other names are no steps"
is "$(cairn inspect r --best checkpointing.metric_name=val_reward)" r/checkpoints/step-000030 "names of v0.3"
is "$(cairn inspect r --best --step checkpointing.higher_is_better=false)" 30 "the lower ones, newer first"
run 1 "no checkpoint has the metric" cairn inspect r --best checkpointing.metric_name=train:reward

# -- nothing that is printed moves a cursor ---------------------------------------------------------------------------
esc=$(printf '\033')
cat >bad.jsonl <<END
{"prompt_id": 1, "token_ids": [1, 2, 3], "prompt_length": 1, "text": "a\\u001b[2J\\u009b\\u007f\\u202eb", "reward": 0.5, "reward_valid": true, "finish_reason": "length"}
{"prompt_id": 2, "token_ids": [1, 2], "prompt_length": 1, "text": "two", "reward": 1, "reward_valid": true}
{"prompt_id": 3, "token_ids": [1, 2], "prompt_length": 1, "text": "three", "reward": 0, "reward_valid": false}
END
run 0 "--show" cairn inspect bad.jsonl --show 9
has out 'a\\x1b\[2J\\u009b\\x7f\\u202eb' "spells out control characters"
is "$(grep -c "$esc" out)" 0 "none gets through"
run 0 "--jsonl" cairn inspect bad.jsonl --jsonl
has out 'a\\u001b\[2J\\u009b\\u007f\\u202eb' "JSON says the same in its own way"
cp out again.jsonl
run 0 "and reads back" cairn inspect --diff bad.jsonl again.jsonl
is "$(cairn inspect bad.jsonl --show 3 --best | sed -n 's/^response: //p' | cut -c1-3 | tr '\n' ' ')" 'two a\x thr ' "--best: unscored ones come last"
is "$(cairn inspect bad.jsonl --show 1 --worst | sed -n 's/.*\(reward [0-9.]*\).*/\1/p')" "reward 0.5" "--worst too"
sed 's/"reward": 0.5/"reward": 0.75/' bad.jsonl >changed.jsonl
run 1 "--diff of samples" cairn inspect --diff bad.jsonl changed.jsonl --json
has out '"fields": \{"reward": \{"samples": 1, "max": 0.25\}\}' "says which field and by how much"

# -- a byte is wrong -----------------------------------------------------------------------------------------------------
for f in manifest.json index.h5 "$(basename ck/weights-*)" hf/config.json tokenizer.h5; do
	cp -r ck damaged && printf '\377' | dd of="damaged/$f" bs=1 seek=300 conv=notrunc 2>/dev/null
	run 65 "--verify: a byte of $f" cairn inspect damaged --verify
	is "$(wc -l <err)" 1 "in one line"
	rm -r damaged
done
for f in "$CAIRN_ROOT"/tests/data/hf-tiny-llama "$CAIRN_ROOT"/tests/data/hf-tiny-llama/model.safetensors; do
	run 0 "$(basename "$f")" cairn inspect "$f" --json
	has out '"tensors": [1-9]' "tells its tensors"
done
n=0
while [ $n -lt 20 ]; do
	t0=$(date +%s%N); cairn inspect ck >/dev/null; echo $((($(date +%s%N) - t0) / 1000000)); n=$((n + 1))
done | sort -n | sed -n 10p >ms
ok "$([ "$(cat ms)" -lt 100 ]; echo $?)" "a look at a checkpoint takes less than 0.1 s ($(cat ms) ms, median of 20)"
tap_done
