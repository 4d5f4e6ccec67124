#!/bin/sh
# plan: hand-worked memory, constraints, the shape of its answers, and what no layout can do.
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"

# config NAME TYPE VOCAB HIDDEN MLP LAYERS HEADS KV HEAD_DIM TIED MORE
config() {
	printf '{"model_type": "%s", "vocab_size": %s, "hidden_size": %s, "intermediate_size": %s, "num_hidden_layers": %s,
"num_attention_heads": %s, "num_key_value_heads": %s, "head_dim": %s, "tie_word_embeddings": %s, "max_position_embeddings": 40960,
"rms_norm_eps": 1e-5, "rope_theta": 500000.0%s}\n' "$2" "$3" "$4" "$5" "$6" "$7" "$8" "$9" "${10}" "${11:-}" >"$1.json"
}
config 8b llama 128256 4096 14336 32 32 8 128 false
config 70b llama 128256 8192 28672 80 64 8 128 false
config 32b qwen3 151936 5120 25600 64 64 8 128 false
config 30b-a3b qwen3_moe 151936 2048 6144 48 32 4 128 false ', "num_experts": 128, "num_experts_per_tok": 8,
"moe_intermediate_size": 768, "norm_topk_prob": true, "decoder_sparse_step": 1'
grpo="grpo.num_prompts_per_step=64 grpo.num_generations_per_prompt=32 policy.train_global_batch_size=512
policy.max_total_sequence_length=4096 policy.sequence_packing.enabled=true policy.sequence_packing.train_mb_tokens=4096"
# get KEY: a number of the JSON answer in out, the first of that name
get() { sed -n "s|.*\"$1\": *\\([0-9.e+-]*\\).*|\\1|p" out | head -n 1; }
first() { grep -o "\"$1\": *[0-9.e+-]*" out | head -n 1 | sed 's/.*: *//'; }
near() { # near GOT WANTED RELATIVE WHAT
	awk -v a="$1" -v b="$2" -v r="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && d <= r * b) }'
	ok $? "$4: $1"
}

# shellcheck disable=SC2086
run 0 "Llama 8B on one node" cairn plan 8b.json --gpus 8 --cluster h200 --mean-prompt 150 --mean-response 795 --json $grpo
near "$(first parameters)" 8030261248 1e-9 "its parameters"
is "$(first tp) $(first pp) $(first cp) $(first dp)" "1 1 1 8" "data parallel only, as NVIDIA's recipe has it"
# By hand: weights 2 P, gradients 4 P, optimizer 12 P / 8, and 139,392 bytes a token and layer where activations are kept.
near "$(first memory/weights)" 16060522496 1e-9 "weights"
near "$(first memory/gradients)" 32121044992 1e-9 "gradients"
near "$(first memory/optimizer)" 12045391872 1e-9 "optimizer state"
# shellcheck disable=SC2086
run 0 "the same where memory does not matter" cairn plan 8b.json --gpus 8 --gpu-memory 1e12 --json $grpo
near "$(first memory/activations)" 18270388224 1e-9 "activations of 4,096 tokens: 32 layers of 139,392 bytes each"

# shellcheck disable=SC2086
run 0 "a reader's form" cairn plan 70b.json --gpus 64 --cluster h100 --mean-prompt 150 --mean-response 398 $grpo
has out '^ 1\. TP [0-9]+  PP [0-9]+ ' "the layout"
has out 'memory +[0-9.]+ GiB' "memory in terms"
has out 'update +[0-9.e+-]+ s, [0-9]+ % of the peak' "time in terms"
has out '^    tensor_model_parallel_size: [0-9]+$' "a piece of a recipe"
# shellcheck disable=SC2086
cairn plan 70b.json --gpus 64 --cluster h100 --yaml $grpo >layout.yaml
run 0 "which a recipe takes" cairn inspect layout.yaml
# shellcheck disable=SC2086
run 0 "experts" cairn plan 30b-a3b.json --gpus 64 --cluster h100 --mean-prompt 150 --mean-response 3251 --json $grpo
near "$(first parameters)" 30532122624 1e-9 "its parameters"
awk -v e="$(first ep)" 'BEGIN { exit !(e > 1) }'
ok $? "are spread over GPUs: EP $(first ep)"

# shellcheck disable=SC2086
run 0 "from 1 to 4,096 GPUs" cairn plan 32b.json --cluster h200 --simulate --json --mean-prompt 150 --mean-response 3283 \
	policy.train_global_batch_size=4096 grpo.num_prompts_per_step=256 grpo.num_generations_per_prompt=32 policy.max_total_sequence_length=4096
is "$(tail -n 1 out | grep -o '"gpus": [0-9]*')" '"gpus": 4096' "the last is 4,096"
awk -F'"step": ' '{ t = $2 + 0; if (n++ && t > last * 1.02) bad = 1; last = t } END { exit bad || n < 8 }' out
ok $? "more GPUs take no longer"

# shellcheck disable=SC2086
run 1 "a model that fits nowhere" cairn plan 70b.json --gpus 1 --cluster h100 $grpo
has err 'no layout of 1 GPUs fits: the leanest wants [0-9.]+ GB a GPU, there are 80.0' "says what it wants"
is "$(wc -l <err)" 1 "in one line"
run 1 "more GPUs than anything can use" cairn plan 8b.json --gpus 4096 policy.train_global_batch_size=1
has err 'larger policy.train_global_batch_size' "says what to change"
run 64 "no model" cairn plan
run 64 "12 GPUs in nodes of 8" cairn plan 8b.json --gpus 12
run 64 "no such cluster" cairn plan 8b.json --gpus 8 --cluster h900
has err 'h100, h200, b200' "names those there are"
run 64 "lengths that cannot be" cairn plan 8b.json --gpus 8 --mean-response 9999
run 66 "no such file" cairn plan nothing.json --gpus 8
echo '{"peak": -1}' >c.json
run 65 "a cluster of nonsense" cairn plan 8b.json --gpus 8 --cluster c.json
echo '{"peek": 1e12}' >c.json
run 65 "and a member that it has not" cairn plan 8b.json --gpus 8 --cluster c.json
has err 'c.json:1: peek' "by name"
run 0 "what this machine can do" cairn plan --measure
awk '/"peak": [0-9.e+]+/ && /"bandwidth": [0-9.e+]+/ && /"storage": [0-9.e+]+/ { good = 1 } END { exit !good }' out
ok $? "in numbers"
cp out here.json
# shellcheck disable=SC2086
run 0 "goes in again" cairn plan 8b.json --gpus 4 --gpus-per-node 4 --gpu-memory 1e12 --cluster here.json $grpo

# -- links between ranks ---------------------------------------------------------------------------------------
echo '{"name": "m", "gpus_per_node": 8, "node_link": 1e9, "net_link": 1e9, "sum_link": {"2": 1e9, "4": 1e9, "8": 1e9}}' >c.json
sed 's/"4": 1e9/"4": 1e13/' c.json >fast.json
sed 's/"2": 1e9/"3": 1e9/' c.json >odd.json
# shellcheck disable=SC2086
{
run 65 "a sum over 3" cairn plan 8b.json --gpus 8 --cluster odd.json $grpo
has err 'odd.json:1: sum_link: found 3' "is named"
run 0 "every sum at the link's rate" cairn plan 8b.json --gpus 8 --gpu-memory 1e12 --cluster c.json $grpo --simulate --most 8 --json
cp out even
run 0 "sums of four in no time" cairn plan 8b.json --gpus 8 --gpu-memory 1e12 --cluster fast.json $grpo --simulate --most 8 --json
}
is "$(sed -n '1,2p' out)" "$(sed -n '1,2p' even)" "one and two GPUs are as they were"
step() { sed -n '3s/.*"step": \([0-9.e+]*\).*/\1/p' "$1"; }
awk "BEGIN { exit !($(step out) < $(step even)) }"; ok $? "four take less time"
need_ranks "links between ranks"
run 0 "what four ranks can do" ranks 4 cairn plan --measure
is "$(wc -l <out)" 1 "one line"
has out '"gpus_per_node": 4.*"latency": [0-9.e-]+.*"sum_link": \{"2": [0-9.e+]+, "4": [0-9.e+]+\}' "latency and sums"
cp out four.json
# shellcheck disable=SC2086
run 0 "goes in again" cairn plan 8b.json --gpus 4 --gpu-memory 1e12 --cluster four.json $grpo --simulate --most 4
for word in "--gpus 0" "--gpus -2" "--gpus-per-node 0" "--mean-prompt -4" "--mean-response -1"; do
	# shellcheck disable=SC2086
	run 64 "$word" cairn plan 8b.json $word $grpo
done
tap_done
