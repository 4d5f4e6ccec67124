# Sourced after tap.sh and ranks.sh: a model over ranks beside the same on one (tests/tools/layouts.c).
# shellcheck shell=sh disable=SC2034
layouts=$BUILD/tests/tools/layouts
small="policy.sequence_packing.train_mb_tokens=70 policy.sequence_packing.logprob_mb_tokens=70 policy.precision=float32
	policy.optimizer.kwargs.lr=1e-3 policy.megatron_cfg.optimizer.lr=1e-3"
megatron="policy.megatron_cfg.enabled=true"
tp=policy.megatron_cfg.tensor_model_parallel_size pp=policy.megatron_cfg.pipeline_model_parallel_size
cp=policy.megatron_cfg.context_parallel_size first=policy.megatron_cfg.num_layers_in_first_pipeline_stage
ep=policy.megatron_cfg.expert_model_parallel_size etp=policy.megatron_cfg.expert_tensor_parallel_size
last=policy.megatron_cfg.num_layers_in_last_pipeline_stage
turns=policy.megatron_cfg.virtual_pipeline_model_parallel_size sp=policy.megatron_cfg.sequence_parallel=true

# model NAME TYPE HEADS KV TIED WIDTH [MORE]: sizes are pairwise distinct; the vocabulary has three blocks of which the last is short.
model() {
	cat >"$1.json" <<-END
		{"model_type": "$2", "vocab_size": 2500, "hidden_size": 24, "intermediate_size": $6, "num_hidden_layers": 5,
		 "num_attention_heads": $3, "num_key_value_heads": $4, "head_dim": 10, "max_position_embeddings": 64,
		 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": $5, "eos_token_id": 2${7:+, $7}}
	END
	# shellcheck disable=SC2086
	"$layouts" "$1.json" "$1.one" $small $megatron >"$1.said" || exit 1
}

number() { sed -n "s|.*\"$1\": \([-+0-9.einf]*\).*|\1|p" out; }
below() { awk -v x="$1" -v y="$2" 'BEGIN { exit !(x ~ /[0-9]/ && x + 0 >= 0 && x + 0 <= y + 0) }'; }
close_to() { awk -v x="$1" -v y="$2" 'BEGIN { d = x - y; exit !(d < 0 ? -d <= 1e-5 * y : d <= 1e-5 * y) }'; }

# like N MODEL [key=value ...]: that many ranks do what one does, bit for bit in the forward pass.
like() {
	near_one "$@"
	is "$(number different) of $(number compared)" "0 of $(sed -n 's/.*"compared": \([0-9]*\).*/\1/p' "$m.said")" "log-probabilities: bits"
}

near_one() {
	n=$1 m=$2; shift 2
	rm -f got again
	# shellcheck disable=SC2086
	ranks "$n" "$layouts" "$m.json" got "$m.one" $small $megatron "$@" >out 2>err; rc=$?
	[ $rc -eq 0 ] || sed 's/^/# /' err
	ok $rc "$m on $n ranks: $(sed -n 's/.*"layout": "\([^"]*\)".*/\1/p' out)"
	below "$(number gradients)" 1e-5; ok $? "gradients: $(number gradients)"
	below "$(number weights)" 1e-5; ok $? "weights after 3 updates: $(number weights)"
	close_to "$(number loss)" "$(sed -n 's/.*"loss": \([-+0-9.e]*\).*/\1/p' "$m.said")" &&
		close_to "$(number norm)" "$(sed -n 's/.*"norm": \([-+0-9.e]*\).*/\1/p' "$m.said")"; ok $? "loss and norm"
	is "$(number unlike_copies)" 0 "copies of a parameter that differ"
}
