#!/bin/sh
# Models with experts over ranks: steps with losses of routers, in DP, TP, CP, PP, EP and ETP, against one rank; a rollout dealt out
# with its experts written down.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
need_ranks "models with experts over ranks"
key=policy.megatron_cfg
tiny_data
tiny_recipe | sed '/^grpo:/,/^sft:/{/^sft:/!d}' >sft.yaml
tiny_recipe >rl.yaml
sizes='"vocab_size": 259, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 64, "tie_word_embeddings": true, "initializer_range": 0.2'
echo "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 3, \"num_experts\": 6, \"num_experts_per_tok\": 2, \"head_dim\": 8, \"mlp_only_layers\": [1],
 \"moe_intermediate_size\": 12, \"norm_topk_prob\": true, $sizes}" >qwen3_moe.json
echo "{\"model_type\": \"qwen2_moe\", \"qkv_bias\": false, \"num_hidden_layers\": 2, \"num_experts\": 5, \"num_experts_per_tok\": 3,
 \"moe_intermediate_size\": 12, \"shared_expert_intermediate_size\": 20, $sizes}" >qwen2_moe.json
near() {
	cairn inspect --diff "$1" "$2" --json >differ 2>err
	awk -F'"relative": ' '{ for (i = 2; i <= NF; i++) if ($i + 0 > 1e-5) bad = 1 } END { exit !(NR && !bad) }' differ; ok $? "$3"
}
number() { sed -n "s|.*\"$1\": \([-+0-9.einf]*\).*|\1|p" "${2:-out}"; }
same() { # same KEY: as one rank found it
	awk -v x="$(number "$1")" -v y="$(number "$1" one.out)" 'BEGIN { d = x - y; exit !(x ~ /[0-9]/ && (d < 0 ? -d : d) <= 1e-5 * y) }'
	ok $? "$where: $1"
}
for model in qwen3_moe qwen2_moe; do
	cairn import-weights --init $model.json --tokenizer bytes --chat-template plain --seed 1 -o $model >/dev/null || exit 1
	set -- $model -c sft.yaml --data train.jsonl --steps 3 policy.precision=float32 policy.train_global_batch_size=5 \
		policy.sequence_packing.train_mb_tokens=40 $key.enabled=true $key.optimizer.lr=1e-3 $key.scheduler.lr_warmup_iters=0 \
		$key.freeze_moe_router=false $key.moe_router_load_balancing_type=aux_loss cairn.moe_z_loss_coeff=0.01
	run 0 "$model: one rank" cairn train-step "$@" -o one.$model
	cp out one.out
	for how in "2 DP -" "3 DP -" "2 PP pipeline" "2 CP context" "2 TP tensor" "2 ETP expert_tensor" "4 EP expert"; do
		n=${how%% *} kind=${how##* } where=${how#* }; where="$model, ${where% *} $n"
		size=; [ "$kind" = - ] || size=$key.${kind}_model_parallel_size=$n
		case $kind in
		context) size=$key.context_parallel_size=$n ;;
		expert_tensor) size=$key.${kind}_parallel_size=$n ;;
		# Over data and tensor ranks; five experts are not divided by two.
		expert) [ $model = qwen3_moe ] || continue
			size="$key.expert_model_parallel_size=2 $key.tensor_model_parallel_size=2 $key.expert_tensor_parallel_size=2" ;;
		esac
		rm -rf there
		# shellcheck disable=SC2086
		run 0 "$where" ranks "$n" train-step "$@" $size -o there
		near one.$model there "$where: weights and moments of one rank"
		same train/moe/load_max
		same train/moe/load_balancing_loss
		same train/moe/z_loss
	done
done
set -- qwen3_moe -c rl.yaml policy.precision=float32 policy.router_replay.enabled=true
run 0 "a rollout" cairn rollout "$@" -o alone
run 0 "over two ranks" ranks 2 rollout "$@" -o dealt
cairn inspect alone --jsonl >alone.jsonl
cairn inspect dealt --jsonl | cmp - alone.jsonl; ok $? "the same samples with the same experts"
for size in expert_model expert_tensor; do
	rm -rf dealt
	run 0 "over two ranks, $size" ranks 2 rollout "$@" $key.enabled=true $key.${size}_parallel_size=2 -o dealt
	cairn inspect dealt --jsonl | cmp - alone.jsonl; ok $? "the same samples with the same experts"
done
cairn rollout "$@" --jsonl >alone.jsonl
run 0 "printed" ranks 2 rollout "$@" --jsonl
cmp out alone.jsonl; ok $? "the same too"
tap_done
