#!/bin/sh
# Models with experts from end to end: both spellings in and out to the byte, logits of transformers, experts that were swapped or
# lost, and steps of SFT and GRPO whose log-probabilities come again to the bit.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
data=$CAIRN_ROOT/tests/data
field() { sed -n "s|.*\"$1\": \"*\([^\",}]*\).*|\1|p" "${2:-out}"; }

# Spellings (tests/tools/record_hf_moe.py).
for name in mixtral qwen2_moe; do
	for how in "" -fused; do
		run 0 "$name$how" cairn import-weights "$data/hf-tiny-$name$how" -o $name$how
		field weights_digest >>$name.digests
		run 0 "$name$how: exported" cairn export $name$how -o out$name$how
		diff -r out$name$how "$data/hf-tiny-$name$how"
		ok $? "$name$how: the folder that came in, to the byte"
		run 0 "$name$how: in shards" cairn export $name$how -o shards$name$how --max-shard-size 4KB
		run 0 "   and in again" cairn import-weights shards$name$how -o again$name$how
		field weights_digest >>$name.digests
	done
	is "$(sort -u $name.digests | wc -l)" 1 "$name: all of them are the same model"
	# A line of {"NAME": {"ids": [..], "logits": [..]}, ...}
	sed "s/.*\"$name\": {\"ids\": \[\([^]]*\)\], \"logits\": \[\([^]]*\)\].*/\1;\2/; s/,//g" "$data/hf-tiny-moe.json" >want
	cut -d';' -f1 want | "$BUILD/tests/tools/dump_logits" $name float32 | od -An -v -tf4 -w4 | tail -n 37 >logits
	cut -d';' -f2 want | tr ' ' '\n' | paste - logits |
		awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > bad) bad = d; n++ } END { print "# worst difference " bad; exit !(n == 37 && bad < 2e-5) }'
	ok $? "$name: logits of transformers"
done
run 0 "inspected" cairn inspect mixtral
has out '5 experts of 14 \(2 a token\) in 2 layers' "experts are told of"
run 0 "a tensor" cairn inspect mixtral --tensor model.layers.1.block_sparse_moe.experts.w1.weight
has out '^shape +5, 14, 12$' "one a projection, of all experts"
has mixtral-fused/experts.json '"fused"' "the spelling is remembered"
[ ! -e mixtral/experts.json ]; ok $? "where it is not the usual one"

# FP8 in blocks, experts one by one.
run 0 "experts in FP8" cairn import-weights "$data/hf-tiny-moe-fp8" -o fp8
field weights_digest >fp8.digest
run 0 "what they stand for" cairn import-weights "$data/hf-tiny-moe-fp8-wide" -o fp8.wide
is "$(field weights_digest)" "$(cat fp8.digest)" "is what is stored"
run 0 "in float32" cairn import-weights "$data/hf-tiny-moe-fp8" --dtype float32 -o fp8.long
run 1 "is nearer" cairn inspect --diff fp8.long fp8.wide

# GGUF (tests/formats/record_gguf_moe.py): the same models.
for name in mixtral qwen2_moe; do
	run 0 "$name of GGUF" cairn import-weights "$data/gguf/$name.gguf" --dtype float32 --tokenizer none -o $name.gguf
	field weights_digest >gguf.digest
	run 0 "$name in float32" cairn import-weights "$data/hf-tiny-$name" --dtype float32 -o $name.wide
	is "$(cat gguf.digest)" "$(field weights_digest)" "$name: the same weights"
	for key in num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size norm_topk_prob mlp_only_layers; do
		is "$(tr -d ' \n' <$name.gguf/hf/config.json | grep -o "\"$key\":[^,]*")" \
			"$(tr -d ' \n' <$name.wide/hf/config.json | grep -o "\"$key\":[^,]*")" "$name: $key"
	done
done

# What is not as it should be.
damaged() { # damaged FROM SED-SCRIPT: a copy of the folder whose headers are changed, sizes kept
	rm -rf bad; cp -r "$1" bad; chmod -R u+w bad
	LC_ALL=C sed -i "$2" bad/model.safetensors
}
swap() { echo "s/layers.1.$1.0.$2/layers.1.$1.X.$2/; s/layers.1.$1.3.$2/layers.1.$1.0.$2/; s/layers.1.$1.X.$2/layers.1.$1.3.$2/"; }
x=block_sparse_moe.experts
damaged "$data/hf-tiny-mixtral" "$(swap $x w1); $(swap $x w2); $(swap $x w3)"
run 0 "two experts swapped" cairn import-weights bad -o swapped
[ "$(field weights_digest)" != "$(head -n 1 mixtral.digests)" ]; ok $? "another digest"
run 1 "compared" cairn inspect --diff mixtral swapped
has out 'layers.1.block_sparse_moe.experts.w1.weight' "the layer is named"
damaged "$data/hf-tiny-mixtral" "s/layers.0.$x.3.w2/layers.0.$x.7.w2/"
run 65 "an expert is missing" cairn import-weights bad -o x
has err "$x.3.w2.weight: missing, wanted 5 experts" "by its name"
damaged "$data/hf-tiny-mixtral" "s/layers.0.$x.0.w2/layers.0.$x.9.w2/"
run 65 "the first is missing" cairn import-weights bad -o x
has err "$x.w2.weight: missing" "by the name of all"
cp -r "$data/hf-tiny-mixtral" more; chmod -R u+w more; sed -i 's/"num_local_experts": 5/"num_local_experts": 4/' more/config.json
run 65 "an expert too many" cairn import-weights more -o x
sed -i 's/"num_local_experts": 4/"num_local_experts": 6/' more/config.json
run 65 "an expert too few" cairn import-weights more -o x
cp -r "$data/hf-tiny-qwen2_moe-fused" wrong; chmod -R u+w wrong
sed -i 's/"moe_intermediate_size": 9/"moe_intermediate_size": 8/' wrong/config.json
run 65 "fused experts of another size" cairn import-weights wrong -o x
has err 'gate_up_proj: shape \[7, 18, 12\], wanted \[7, 16, 12\]' "both are said"
damaged "$data/hf-tiny-mixtral-fused" 's/layers.1.mlp.experts.gate_up_proj/layers.1.mlp.experts.gate_xx_proj/'
run 65 "fused experts that are missing" cairn import-weights bad -o x
[ ! -e x ]; ok $? "nothing is written"

# Steps.  Prompts of 20 to 300 bytes.
awk 'BEGIN { for (i = 0; i < 8; i++) { s = "p" i; n = i % 4 == 3 ? 300 : 20 + 7 * i
	while (length(s) < n) s = s " " (i * 37 + length(s) * 11) % 101
	printf "{\"prompt\": \"%s\", \"answer\": \"1\", \"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"assistant\", \"content\": \"%d\"}]}\n", s, s, i } }' >train.jsonl
cat >recipe.yaml <<END
policy:
  max_total_sequence_length: 512
  train_global_batch_size: 16
  generation: {max_new_tokens: 60}
  sequence_packing: {train_mb_tokens: 1024, logprob_mb_tokens: 1024}
  megatron_cfg: {freeze_moe_router: false}
grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 2}
loss_fn: {reference_policy_kl_penalty: 0}
env: {math: {reward_functions: [{name: format, weight: 1.0, pattern: "[0-9]"}]}}
data: {train: {data_path: train.jsonl}}
cairn: {recompute_share: 1.0}
END
sizes='"vocab_size": 259, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 1024, "tie_word_embeddings": true, "initializer_range": 0.3'
echo "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"num_local_experts\": 5, $sizes}" >mixtral.json
echo "{\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 3, \"num_experts\": 9, \"num_experts_per_tok\": 3, \"mlp_only_layers\": [1],
 \"moe_intermediate_size\": 24, \"shared_expert_intermediate_size\": 40, $sizes}" >qwen2_moe.json
echo "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"num_experts\": 13, \"num_experts_per_tok\": 4, \"head_dim\": 16,
 \"moe_intermediate_size\": 24, \"norm_topk_prob\": true, $sizes}" >qwen3_moe.json
for name in mixtral qwen2_moe qwen3_moe; do
	run 0 "$name: a random start" cairn import-weights --init $name.json --tokenizer bytes --chat-template plain --seed 3 -o $name.start
	for t in float32 bfloat16; do
		set -- $name.start -c recipe.yaml "policy.precision=$t"
		run 0 "$name $t: rollout" cairn rollout "$@" -o $name.$t --batch 7 --threads 2
		run 0 "$name $t: counted" "$BUILD/tests/tools/recompute" $name.start $name.$t $t
		[ "$(field tokens)" -gt 400 ]; ok $? "$name $t: $(field tokens) tokens"
		is "$(field different)" 0 "$name $t: computed again one by one: 0 bits different"
		cairn rollout "$@" -o $name.$t.1 --batch 1 --threads 1 >/dev/null
		cmp -s $name.$t/samples-0000.h5 $name.$t.1/samples-0000.h5; ok $? "$name $t: one at a time: the same file"
		run 0 "$name $t: scored" cairn score $name.$t -c recipe.yaml --policy $name.start -o $name.$t.scored "policy.precision=$t"
		run 0 "$name $t: a step of GRPO" cairn train-step $name.start $name.$t.scored -o $name.$t.next -c recipe.yaml "policy.precision=$t"
		is "$(field train/logprob_bits_different)" 0 "$name $t: 0 log-probabilities differ"
	done
	run 0 "$name: a step of SFT" cairn train-step $name.start --data train.jsonl -o $name.sft -c recipe.yaml policy.precision=float32
	field train/loss >loss
	run 0 "$name: and another" cairn train-step $name.sft --data train.jsonl -o $name.sft2 -c recipe.yaml policy.precision=float32
	run 0 "$name: exported" cairn export $name.sft2 -o $name.hf
	run 0 "$name: the checkpoint is whole" cairn inspect $name.sft2 --verify
	run 1 "$name: compared with the start" cairn inspect --diff $name.start $name.sft2
	has out 'experts' "$name: experts have moved"
	has out 'gate.weight' "$name: so have routers"
done

# Losses of routers, loads, routers that are not trained.
step() { # step FROM TO KEY=VALUE...
	from=$1 to=$2; shift 2
	cairn train-step "$from" --data train.jsonl -o "$to" -c recipe.yaml policy.precision=float32 policy.megatron_cfg.enabled=true "$@"
}
run 0 "a plain step" step qwen2_moe.start plain
has out '"train/moe/load_max": [1-9]' "loads are among the metrics"
has out '"train/moe/experts_unused": [0-9]' "and unused experts"
grep -q 'loss_layer\|load_balancing\|z_loss' out; is $? 1 "losses that are off are not"
on="policy.megatron_cfg.moe_router_load_balancing_type=aux_loss policy.megatron_cfg.moe_per_layer_logging=true"
# shellcheck disable=SC2086
run 0 "with losses of routers" step qwen2_moe.start balanced $on cairn.moe_z_loss_coeff=0.001
has out '"train/moe/load_balancing_loss": [0-9.]+' "load balancing"
has out '"train/moe/z_loss_layer_2": [0-9.]+' "z loss, and of a layer"
grep -q 'layer_1"' out; is $? 1 "a layer without experts has none"
run 1 "another step" cairn inspect --diff plain balanced
has out 'layers.0.mlp.gate.weight' "of routers"
run 78 "another kind of balance" step qwen2_moe.start x policy.megatron_cfg.moe_router_load_balancing_type=sinkhorn
run 0 "with frozen routers" step qwen2_moe.start frozen policy.megatron_cfg.freeze_moe_router=true
run 1 "compared" cairn inspect --diff qwen2_moe.start frozen
has out 'experts.down_proj' "experts have moved"
cairn inspect qwen2_moe.start --tensor model.layers.0.mlp.gate.weight | grep -v '^role\|^boxes' >was
run 0 "a router" cairn inspect frozen --tensor model.layers.0.mlp.gate.weight
has out '^role +frozen$' "is said to be frozen"
grep -v '^role\|^boxes' out | cmp - was; ok $? "and has not moved"
run 0 "frozen on" step frozen frozen2 policy.megatron_cfg.freeze_moe_router=true
run 0 "trained from there" step frozen thawed
run 1 "compared" cairn inspect --diff frozen thawed
has out 'mlp.gate.weight' "routers move again"
run 0 "and frozen again" step thawed again policy.megatron_cfg.freeze_moe_router=true
run 0 "exported" cairn export again -o again.hf

# Experts of the rollout, visited again.
set -- -c recipe.yaml policy.precision=float32 policy.router_replay.enabled=true
run 0 "rollout writes experts down" cairn rollout qwen2_moe.start "$@" -o routes
drawn() { sed 's/.*\("token_ids": [^]]*\].*"logprobs": [^]]*\]\).*/\1/' "$@"; }
cairn inspect routes --jsonl >routes.jsonl
drawn routes.jsonl >routes.drawn
cairn inspect qwen2_moe.float32 --jsonl | drawn | cmp - routes.drawn; ok $? "and draws the same"
[ "$(grep -c '"token_ids": \[[0-9]' routes.drawn)" -eq 16 ]; ok $? "16 samples"
run 0 "again through them" "$BUILD/tests/tools/recompute" qwen2_moe.start routes float32 replay
is "$(field different)" 0 "0 bits different"
# The first token's experts go behind the last one's.
sed 's/"expert_ids": \[\(\[\[[^]]*\], \[[^]]*\]\]\), \(.*\), \[\[-1, -1, -1\], \[-1, -1, -1\]\]\]/"expert_ids": [\2, \1, [[-1, -1, -1], [-1, -1, -1]]]/' routes.jsonl >moved.jsonl
cmp -s routes.jsonl moved.jsonl; is $? 1 "the same, moved by a token"
run 0 "again through these" "$BUILD/tests/tools/recompute" qwen2_moe.start moved.jsonl float32 replay
[ "$(field different)" -gt 100 ]; ok $? "differ in $(field different) of $(field tokens)"
run 0 "scored" cairn score routes -o routes.scored --policy qwen2_moe.start "$@"
run 0 "a step" cairn train-step qwen2_moe.start routes.scored -o routes.next "$@"
is "$(field train/logprob_bits_different)" 0 "0 log-probabilities differ"
is "$(field weights_digest routes.next/manifest.json)" "$(field weights_digest qwen2_moe.float32.next/manifest.json)" \
	"the first update of a step is that without replay"
run 65 "samples without experts" cairn train-step qwen2_moe.start qwen2_moe.float32.scored -o x "$@"
has err 'no expert_ids' "are refused"
cairn inspect routes.scored --jsonl | sed 's/"expert_ids": \[\[\[[0-9]*/"expert_ids": [[[9/' >bad.jsonl
run 65 "an expert that is none" cairn train-step qwen2_moe.start bad.jsonl -o x "$@"
has err 'token 0, layer 0: no expert of this model' "is named"
cairn inspect routes.scored --jsonl | sed 's/"expert_ids": \[\[\[\([0-9]*\), [0-9]*/"expert_ids": [[[\1, \1/' >bad.jsonl
run 65 "an expert twice" cairn train-step qwen2_moe.start bad.jsonl -o x "$@"
has err 'the same expert twice' "is named"
run 65 "experts of another model" cairn train-step mixtral.start routes.scored -o x "$@"
cairn import-weights "$data/hf-tiny-llama" -o dense >/dev/null
run 78 "a model without experts" cairn rollout dense "$@" -o x
tap_done
