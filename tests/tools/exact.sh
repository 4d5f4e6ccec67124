#!/bin/sh
# What rollout recorded is what score and train-step compute again, to the bit, over 10,000 tokens: float32 and bfloat16, batches
# of 1, 7 and 32, packed or not, 1 and 2 threads, in sequences that cross 64, 512 and 1,100 positions.  The controls, one weight
# bit flipped and other splits of keys, must show.  CAIRN_EXACT names a checkpoint to be used instead of the tiny model;
# CAIRN_EXACT_DEVICE=cuda: the same on a GPU, with fewer batches and without the controls, which are the CPU's.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
device=${CAIRN_EXACT_DEVICE:-cpu}
field() { sed -n "s|.*\"$1\": \"*\([^\",}]*\).*|\1|p" "${2:-out}"; }

cat >model.json <<END
{"model_type": "llama", "vocab_size": 259, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": true, "initializer_range": 0.3}
END
# Prompts of 20 to 1,000 bytes.
awk 'BEGIN { for (i = 0; i < 20; i++) { s = "p" i; n = i % 4 == 3 ? 990 : i % 4 == 2 ? 420 : 20 + 7 * i
	while (length(s) < n) s = s " " (i * 37 + length(s) * 11) % 101; printf "{\"prompt\": \"%s\", \"answer\": \"1\"}\n", s } }' >train.jsonl
cat >recipe.yaml <<END
policy:
  max_total_sequence_length: 2048
  train_global_batch_size: 64
  generation: {max_new_tokens: 400}
  sequence_packing: {train_mb_tokens: 4096, logprob_mb_tokens: 4096}
grpo: {num_prompts_per_step: 20, num_generations_per_prompt: 4}
loss_fn: {reference_policy_kl_penalty: 0}
env: {math: {reward_functions: [{name: format, weight: 1.0, pattern: "[0-9]"}]}}
data: {train: {data_path: train.jsonl}}
cairn: {recompute_share: 1.0, device: $device}
END
if [ -n "${CAIRN_EXACT:-}" ]; then ln -s "$CAIRN_EXACT" start
else cairn import-weights --init model.json --tokenizer bytes --chat-template plain --seed 3 -o start >/dev/null || exit 1; fi

batches="1 7 32 packed" threads_of="1 2"
[ $device = cpu ] || batches="1 7 packed" threads_of=1
packed() { [ "$1" = packed ] && echo true || echo false; }
for t in float32 bfloat16; do
	set -- start -c recipe.yaml "policy.precision=$t"
	run 0 "$t: rollout" cairn rollout "$@" -o $t.7 --batch 7 --threads 2
	if [ $device = cpu ]; then
		run 0 "$t: counted" "$BUILD/tests/tools/recompute" start $t.7 $t
		tokens=$(field tokens) longest=$(field longest)
		[ "$tokens" -ge 10000 ]; ok $? "$t: $tokens tokens"
		[ "$longest" -gt 1100 ]; ok $? "$t: the longest sequence has $longest"
		is "$(field different)" 0 "$t: computed again one by one: 0 bits different"
	fi
	for batch in 1 32; do
		cairn rollout "$@" -o $t.$batch --batch $batch --threads 1 >/dev/null
		cmp -s $t.$batch/samples-0000.h5 $t.7/samples-0000.h5
		ok $? "$t: rollout in batches of $batch on 1 thread: the same file as in batches of 7 on 2"
	done
	run 0 "$t: scored" cairn score $t.7 -c recipe.yaml -o $t.scored
	for threads in $threads_of; do
		for how in $batches; do
			[ $how = packed ] && n=4 || n=$how
			set -- -c recipe.yaml "policy.precision=$t" "policy.train_micro_batch_size=$n" "policy.logprob_batch_size=$n" \
				"policy.sequence_packing.enabled=$(packed $how)"
			run 0 "$t, $threads threads, batch $how: score finds every bit again" \
				cairn score $t.7 --policy start -o again --threads $threads "$@"
			run 0 "$t, $threads threads, batch $how: train-step" cairn train-step start $t.scored -o next --threads $threads "$@"
			is "$(field train/logprob_bits_different)" 0 "   0 log-probabilities differ"
			field weights_digest next/manifest.json >>$t.next.$threads
			rm -rf again next
		done
	done
	[ $device = cpu ] || continue
	cmp $t.next.1 $t.next.2 && [ "$(wc -l <$t.next.1)" -eq 4 ]
	ok $? "$t: the next weights are the same on 1 and 2 threads"

	# Controls.
	run 0 "$t: with other splits of keys" "$BUILD/tests/tools/recompute_split" start $t.7 $t
	[ "$(field different)" -gt 100 ]; ok $? "$t: another size of key blocks shows in $(field different) tokens"
	run 0 "$t: exported" cairn export start -o $t.hf --dtype $t
	file=$t.hf/model.safetensors
	at=$(($(wc -c <"$file") - 4))
	byte=$(od -An -tu1 -j $at -N 1 "$file" | tr -d ' ')
	# shellcheck disable=SC2059
	printf "\\$(printf %03o $((byte ^ 1)))" | dd of="$file" bs=1 seek=$at conv=notrunc 2>/dev/null
	run 0 "$t: one bit of one weight flipped" cairn import-weights $t.hf -o $t.flipped
	run 0 "$t: computed again" "$BUILD/tests/tools/recompute" $t.flipped $t.7 $t
	[ "$(field different)" -gt 0 ]; ok $? "$t: one flipped bit of a weight shows in $(field different) tokens"
done
tap_done
