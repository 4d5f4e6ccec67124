#!/bin/sh
# rollout: the real program on a random byte model: prompts, cursor, splits, outputs, memory, statuses, interruption.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"

cat >config.json <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 259, "hidden_size": 64, "intermediate_size": 160,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "float32", "eos_token_id": 257,
 "bos_token_id": 256, "hidden_act": "silu", "initializer_range": 0.2}
END
for i in 0 1 2 3 4 5 6; do echo "{\"prompt\": \"what is $i+$i?\", \"answer\": \"$((i + i))\"}"; done >data.jsonl
run 0 "a model from a random start" import-weights --init config.json --tokenizer bytes --chat-template chatml --seed 3 -o ckpt
run 0 "the same without a template" import-weights --init config.json --tokenizer bytes --seed 3 -o bare

short=policy.generation.max_new_tokens=8
data="data.train.data_path=data.jsonl data.validation.data_path=data.jsonl grpo.num_prompts_per_step=3 grpo.num_generations_per_prompt=4 $short"
field() { grep -oE "\"$1\": (\"[^\"]*\"|\[[^]]*\]|[^,}]*)" | sed 's/^[^:]*: //'; }
# What was sampled, without what names the run.
drawn() { sed -E 's/"order": [0-9]+, //; s/"row": .*//' "$1" | sort; }

# -- outputs
run 0 "prompts on standard input, text out" sh -c "echo '{\"prompt\": \"2+2?\"}' | rollout ckpt --prompts - --text $short"
ok "$([ -s out ]; echo $?)" "an answer"
run 0 "a base model continues the bare prompt" rollout bare --prompts data.jsonl --jsonl $short
is "$(field prompt_length <out | head -n 1)" 13 "BOS and the prompt's 12 bytes"
run 65 "data need a template" rollout bare -o none $data
has err 'no chat template' "and it says so"
run 0 "plain is a template too" rollout bare -o plain $data policy.tokenizer.chat_template=plain
run 64 "no output" rollout ckpt --prompts data.jsonl
run 64 "two outputs on standard output" rollout ckpt --prompts data.jsonl --text --jsonl
run 78 "no data" rollout ckpt -o none
run 66 "absent data" rollout ckpt -o none data.train.data_path=nothing.jsonl
run 64 "an unknown split" rollout ckpt -o none --split test $data
run 73 "an output that is there" rollout ckpt -o plain $data
run 73 "an output in a folder that is not there" rollout ckpt -o no/where $data
run 0 "a dry run" rollout ckpt --dry-run $data
has out '"samples": 12,.*"response_tokens_at_most": 96,.*"bytes": .*"seconds": ' "tells memory and time"
ok "$([ ! -e none ]; echo $?)" "nothing was made"

# -- prompts of one's own beside a recipe
printf 'grpo: {num_generations_per_prompt: 4, val_num_generations_per_prompt: 3}\n' >groups.yaml
for words in "" "--split validation"; do
	# shellcheck disable=SC2086
	run 0 "prompts beside a recipe with groups $words" rollout ckpt --prompts data.jsonl -c groups.yaml --text $short $words
	is "$(wc -l <out)" 7 "one answer each"
done
run 0 "and -n" rollout ckpt --prompts data.jsonl -c groups.yaml --text $short -n 2
is "$(wc -l <out)" 14 "as many as it says"

# -- the cursor
run 0 "three prompts" rollout ckpt -o first $data
has out '"train/num_samples": 12,.*"train/truncation_rate"' "a line of metrics"
is "$(wc -l <out)" 1 "and only that"
has out '"timing/load": [0-9.e-]+, "timing/save": [0-9.e-]+[,}]' "with the seconds of loading and saving"
! grep -q timing first/metrics.json first/manifest.json; ok $? "which are in no file"
is "$(field position <first/manifest.json)" 3 "the cursor stands behind them"
run 0 "the three after them" rollout ckpt -o second --after first $data
run 0 "and so on into the next pass" rollout ckpt -o third --after second $data
is "$(field position <third/manifest.json)" 9 "the cursor counts draws of the whole run"
for s in first second third; do inspect $s --jsonl; done >all
is "$(field group <all | sort -u | grep -c ', 0]')" 7 "every prompt once in the first pass"
is "$(field group <all | sort -u | grep -c ', 1]')" 2 "the next pass draws anew"
run 78 "a cursor of other data" sh -c "head -n 5 data.jsonl >other.jsonl; rollout ckpt -o none --after first $data data.train.data_path=other.jsonl"
has err 'cursor is of data [0-9a-f]{32}, the training data are [0-9a-f]{32}' "names both"
run 0 "unless it is reset" rollout ckpt -o reset --after first --reset-cursor $data data.train.data_path=other.jsonl
is "$(field position <reset/manifest.json)" 3 "the cursor began anew"
is "$(field step <first/metrics.json)" 1 "the step is the checkpoint's and one"
run 0 "or as told" rollout ckpt -o ninth --step 9 $data
is "$(field step <ninth/metrics.json)" 9 "step 9"
run 0 "again" rollout ckpt -o again $data
cmp -s first/samples-0000.h5 again/samples-0000.h5 && cmp -s first/metrics.json again/metrics.json; ok $? "the same command, the same bytes"

# -- validation
run 0 "validation" rollout ckpt -o v1 --split validation $data grpo.max_val_samples=5
run 0 "later" rollout ckpt -o v2 --split validation --step 7 --batch 1 $data grpo.max_val_samples=5
for v in v1 v2; do inspect $v --jsonl | sed 's/"step": [0-9]*, //' >$v.jsonl; done
cmp -s v1.jsonl v2.jsonl; ok $? "repeats the same samples"
is "$(field prompt_id <v1.jsonl | tr '\n' ' ')" "0 1 2 3 4 " "rows in file order"
has v1/metrics.json '"validation/mean_gen_tokens_per_sample"' "metrics of validation"

# -- nothing but the seed, the prompt and the sample decides (B45)
awk '{ sub(/^{/, "{\"prompt_id\": " NR - 1 ", "); print }' data.jsonl >ids.jsonl
sed -n '1!G;h;$p' ids.jsonl >reversed.jsonl
one="--prompts ids.jsonl -n 4 --jsonl $short grpo.seed=7"
rollout ckpt $one >want
for words in "--batch 1" "--batch 3 --threads 1" "--threads 2" "--memory 3M" "--prompts reversed.jsonl"; do
	run 0 "with $words" rollout ckpt $one $words
	is "$(drawn out | cksum)" "$(drawn want | cksum)" "the same samples with $words"
done
for i in 0 1 2 3 4 5 6; do grep "\"prompt_id\": $i," ids.jsonl | rollout ckpt $one --prompts -; done >apart
is "$(drawn apart | cksum)" "$(drawn want | cksum)" "and from a process for each prompt"
is "$(head -n 4 want | field token_ids | sort -u | wc -l)" 4 "samples of a prompt differ"
run 0 "another seed" rollout ckpt $one grpo.seed=8
ok "$([ "$(field token_ids <out | cksum)" != "$(field token_ids <want | cksum)" ]; echo $?)" "draws others"
run 65 "prompt_id in some rows only" sh -c "cat ids.jsonl data.jsonl | rollout ckpt --prompts - --jsonl $short"

# -- limits
run 69 "too little memory" rollout ckpt -o none --memory 500K $data
run 69 "too little memory by the recipe" rollout ckpt -o none cairn.memory=500K $data
has err 'want [0-9]+ bytes beside' "says how much is wanted"
printf '{"prompt": "%0600d"}\n{"prompt": "short"}\n' 1 >long.jsonl
run 78 "no memory at all" rollout ckpt -o none cairn.memory=lots $data
run 0 "a prompt that is too long is left out" rollout ckpt --prompts long.jsonl -o cut $short
has out '"train/num_prompts": 1,.*"train/prompts_too_long": 1' "and counted"
has err '1 prompts of more than 511 tokens are left out' "and reported"
run 65 "nothing fits" rollout ckpt --prompts data.jsonl --text policy.max_total_sequence_length=20
run 65 "a damaged checkpoint" sh -c "cp -r ckpt bad && printf X | dd of=bad/hf/config.json bs=1 seek=9 conv=notrunc 2>/dev/null; rollout bad --prompts data.jsonl --text"
run 65 "rows that are no objects" sh -c "echo 17 | rollout ckpt --prompts - --text"

# -- interrupted: nothing stays, and a rerun gives the same
i=1
while [ $i -lt 400 ]; do
	CAIRN_TEST_KILL=$i rollout ckpt -o killed $data >out 2>err && break
	[ ! -e killed ] || break
	i=$((i + 1))
done
ok "$([ $i -gt 5 ] && cmp -s first/samples-0000.h5 killed/samples-0000.h5; echo $?)" "killed at each of $i writes: nothing, or the same set"
rollout ckpt -o stopped $data policy.generation.max_new_tokens=400 grpo.num_generations_per_prompt=64 grpo.num_prompts_per_step=20 >/dev/null 2>err &
pid=$!
sleep 0.3
kill -INT $pid; kill -TERM $pid 2>/dev/null; wait $pid
ok "$([ ! -e stopped ] && [ ! -e stopped.tmp ]; echo $?)" "a signal leaves nothing"
run 130 "Ctrl-C" timeout --preserve-status -s INT 0.3 rollout ckpt -o stopped $data policy.generation.max_new_tokens=400 \
	grpo.num_generations_per_prompt=64 grpo.num_prompts_per_step=20
ok "$([ ! -e stopped ] && [ ! -e stopped.tmp ] && [ ! -s out ]; echo $?)" "leaves nothing and says no result"
run 0 "the second try" rollout ckpt -o stopped $data
cmp -s first/samples-0000.h5 stopped/samples-0000.h5; ok $? "works"
if [ -c /dev/full ]; then
	rollout ckpt --prompts data.jsonl --text $short >/dev/full 2>err; is $? 74 "a full standard output is 74"
fi
tap_done
