# Sourced after tap.sh: a run of a tiny model, seconds a step.  tiny_model DIR; tiny_data; tiny_recipe >FILE.
# shellcheck shell=sh

# A checkpoint of a llama with two layers and the bytes as its vocabulary, from a random start.
tiny_model() {
	cat >model.json <<-END
		{"model_type": "llama", "vocab_size": 259, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
		 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
		 "rope_theta": 10000.0, "tie_word_embeddings": true}
	END
	cairn import-weights --init model.json --tokenizer bytes --chat-template plain --seed 1 -o "$1" >/dev/null
}

tiny_data() {
	awk 'BEGIN { for (a = 1; a < 5; a++) for (b = 1; b < 4; b++) printf "{\"prompt\": \"%d+%d=\", \"answer\": \"%d\"}\n", a, b, a + b }' >train.jsonl
	head -n 4 train.jsonl >held.jsonl
}

# exact is nearly never right by chance, so the pattern gives the groups their spread.
tiny_recipe() {
	cat <<-END
		policy:
		  model_name: start
		  precision: bfloat16
		  train_global_batch_size: 8
		  max_total_sequence_length: 32
		  generation: {max_new_tokens: 6}
		  optimizer: {kwargs: {lr: 1.0e-2, weight_decay: 0.01}}
		grpo:
		  num_prompts_per_step: 4
		  num_generations_per_prompt: 4
		  max_num_steps: 3
		  val_period: 2
		  val_at_start: false
		  max_val_samples: 4
		sft: {max_num_steps: 4, val_at_start: false}
		loss_fn: {reference_policy_kl_penalty: 0.01}
		env:
		  math:
		    reward_functions:
		      - {name: exact, weight: 1.0}
		      - {name: format, weight: 0.5, pattern: "[0-9]"}
		data:
		  train: {data_path: train.jsonl}
		  validation: {data_path: held.jsonl}
		checkpointing:
		  checkpoint_dir: run
		  save_period: 1
		  keep_top_k: 1
	END
}
