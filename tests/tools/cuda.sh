#!/bin/sh
# Whole programs on the emulated CUDA backend (docs/cuda.md) beside the CPU's: losses, weights, greedy ids in float32; in bfloat16
# the log-probabilities that rollout recorded are those that score and train-step compute, to the bit.  Memory of the device is
# out of the host's reach (tests/emu/guard.cpp).  And what is said where no device can be had.  CUDA_WHOLE=path of cairn-cuda.so: the
# same on a GPU.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
metric() { sed -n "s|.*\"$1\": \([-0-9.e+]*\).*|\1|p" "${2:-out}"; }
near() { # near A B WHAT
	awk -v x="$1" -v y="$2" 'BEGIN { d = x - y; exit !(x ~ /[0-9]/ && y ~ /[0-9]/ && (d < 0 ? -d : d) <= 1e-5 * (y < 0 ? -y : y)) }'
	ok $? "$3: $1, the CPU $2"
}

# -- models; sizes are pairwise distinct ------------------------------------------------------------------
init() { # init NAME TYPE [MORE]
	cat >"$1.json" <<-END
		{"model_type": "$2", "vocab_size": 259, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
		 "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10, "max_position_embeddings": 128,
		 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true, "initializer_range": 0.25${3:+, $3}}
	END
	cairn import-weights --init "$1.json" --tokenizer bytes --chat-template plain --seed 5 -o "$1" >/dev/null
}
awk 'BEGIN { for (i = 0; i < 6; i++) { s = "p" i; while (length(s) < 9 + 13 * i) s = s " " (i * 37 + length(s) * 11) % 101
	printf "{\"prompt\": \"%s\", \"answer\": \"%d\"}\n", s, i * 31 } }' >train.jsonl
cat >recipe.yaml <<END
policy:
  train_global_batch_size: 6
  max_total_sequence_length: 96
  generation: {max_new_tokens: 8}
  optimizer: {kwargs: {lr: 1.0e-3, weight_decay: 0.01}}
  sequence_packing: {train_mb_tokens: 160, logprob_mb_tokens: 160}
grpo: {num_prompts_per_step: 3, num_generations_per_prompt: 2}
loss_fn: {reference_policy_kl_penalty: 0.01}
env: {math: {reward_functions: [{name: format, weight: 1.0, pattern: "[0-9]"}]}}
data: {train: {data_path: train.jsonl}}
cairn: {recompute_share: 1.0}
END

# -- no driver, no library ---------------------------------------------------------------------------------
for p in import-weights rollout score train-step export inspect reshard plan cairn; do ldd "$BIN/$p"; done >libraries 2>&1
! grep -iE 'cuda|nvidia|nccl' libraries; ok $? "no program names a library of CUDA"
init llama llama
if [ -z "${CAIRN_CUDA_SO:-}" ] && ! [ -e /dev/nvidia0 ]; then
	run 69 "--device cuda where none is" cairn rollout llama --device cuda --prompts train.jsonl --text
	is "$(wc -l <err)" 1 "one line"
	has err '^[a-z-]*: --device cuda: .*(was this built with CUDA|no CUDA device|does not load)' "with the reason"
	run 64 "a device that nobody knows" cairn rollout llama --device cuda:x --prompts train.jsonl --text
fi

if [ -n "${CUDA_WHOLE:-}" ]; then
	CAIRN_CUDA_SO=$CUDA_WHOLE
elif [ "$(uname -m)" != x86_64 ] || [ ! -e "$BUILD/emu-plain/cairn-cuda.so" ]; then
	skip "whole programs on an emulated device" "NVIDIA's headers are not here; see docs/cuda.md"
	tap_done
else
	CAIRN_CUDA_SO=$BUILD/emu-plain/cairn-cuda.so EMU_GUARD=1
fi
export CAIRN_CUDA_SO; [ -z "${EMU_GUARD:-}" ] || export EMU_GUARD

# -- float32: what the CPU does -----------------------------------------------------------------------------
cairn rollout llama -c recipe.yaml --device auto -v -o auto >out 2>err
if grep -q 'is not built for cuda yet' err; then
	skip "whole programs on an emulated device" "$(grep -o '[a-z_]* is not built for cuda yet' err)"
	tap_done
fi
# greedy NAME: the ids of three samples; on ties within the last bits nothing is promised, and these have none.
greedy() {
	for d in cpu cuda; do
		run 0 "$1: greedy rollout, $d" cairn rollout "$1" -c recipe.yaml --device $d -o "$1.$d" policy.precision=float32 \
			policy.generation.temperature=0 grpo.num_generations_per_prompt=1
		cairn inspect "$1.$d" --jsonl | grep -o '"token_ids": \[[^]]*\]' >"$1.$d.ids"
	done
	[ -s "$1.cpu.ids" ] && cmp "$1.cpu.ids" "$1.cuda.ids"; ok $? "$1: the same greedy ids"
}
worst() { sed -n 's/.*"relative": \([-0-9.e+naif]*\).*/\1/p' | sort -g | tail -n 1; }
# learn NAME: two updates of SFT.  What a bias of the keys adds is nearly the same for all keys of a query, which softmax does not see:
# its gradient is nearly all rounding, and Adam makes steps of the same size of it.
learn() {
	for d in cpu cuda; do
		run 0 "$1: two steps of SFT, $d" cairn train-step "$1" --data train.jsonl --steps 2 -c recipe.yaml --device $d -o "$1.$d.sft" \
			policy.precision=float32
		metric train/loss >"$1.$d.loss"
		metric train/grad_norm >"$1.$d.norm"
	done
	near "$(cat "$1.cuda.loss")" "$(cat "$1.cpu.loss")" "$1: loss"
	near "$(cat "$1.cuda.norm")" "$(cat "$1.cpu.norm")" "$1: norm of the gradient"
	cairn inspect --diff "$1.cpu.sft" "$1.cuda.sft" --json >"$1.diff"
	grep '"slot": "weight"' "$1.diff" >"$1.weights"
	most=$(grep -v 'k_proj.bias' "$1.weights" | worst) bias=$(grep 'k_proj.bias' "$1.weights" | worst)
	awk -v w="$most" -v b="${bias:-0}" -v n="$(wc -l <"$1.weights")" 'BEGIN { exit !(n > 5 && w ~ /[0-9]/ && w + 0 <= 1e-5 && b + 0 <= 1e-4) }'
	ok $? "$1: weights after 2 updates, of their norm: ${most:-none}"
}
# -- bfloat16: exactly on-policy ---------------------------------------------------------------------------
exact() {
	set -- "$1" -c recipe.yaml --device cuda policy.precision=bfloat16
	name=$1; shift
	run 0 "$name: rollout, bfloat16" cairn rollout "$name" "$@" -o "$name.drawn"
	cairn rollout "$name" "$@" -o "$name.one" --batch 1 >out
	cmp -s "$name.one/samples-0000.h5" "$name.drawn/samples-0000.h5"; ok $? "$name: one by one the same file"
	run 0 "$name: score finds every bit again" cairn score "$name.drawn" --policy "$name" --reference "$name" "$@" -o "$name.scored"
	run 0 "$name: train-step" cairn train-step "$name" "$name.scored" "$@" -o "$name.next"
	is "$(metric train/logprob_bits_different)" 0 "$name: log-probabilities of $(metric train/logprob_tokens_compared) tokens, 0 differ"
}

greedy llama; learn llama; exact llama
init qwen2 qwen2
learn qwen2
init qwen3 qwen3
greedy qwen3; learn qwen3
init mixtral mixtral '"num_local_experts": 5, "num_experts_per_tok": 2'
greedy mixtral; learn mixtral; exact mixtral

# -- memory that is not there ------------------------------------------------------------------------------
[ -z "${CUDA_WHOLE:-}" ] || tap_done
EMU_MEMORY=60000; export EMU_MEMORY
run 69 "a device that is too small" cairn rollout llama -c recipe.yaml --device cuda -o small
has err '^rollout: out of device memory: [0-9]+ bytes for [a-z A-Z_.]+, and [0-9]+ of 60000 are free' "says what wanted how much"
is "$(wc -l <err)" 1 "in one line"
[ ! -e small ]; ok $? "and leaves nothing"
tap_done
