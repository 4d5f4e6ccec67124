#!/bin/sh
# load-save.sh FOLDER: what loading and saving take of a GRPO step with SmolLM2's shape in bfloat16: 64 samples of up to 256 new
# tokens, a checkpoint with optimizer state.  FOLDER is new, on the disk; /dev/shm is the memory-backed storage.
#
# One whole step (rollout, score, train-step) is timed.  Load plus save is the median of 10 rounds, each of the three programs with
# the same checkpoint and as many samples, but few new tokens and few rows: they read and write as much as those of the step.
# shellcheck shell=sh
set -eu
mkdir -p "$1"
disk=$(cd "$1" && pwd)
memory=/dev/shm/cairn-rows.$$
trap 'rm -rf "$memory"' EXIT
trap 'exit 130' INT TERM
rounds=${ROUNDS:-10}
row() { # row NAME VALUE GOAL CONDITION-FOR-AWK
	verdict=$(awk "BEGIN { print ($4) ? \"ok\" : \"short\" }")
	printf 'ROW\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$verdict"
}
now() { date +%s.%N; }
# of FILE...: load plus save of the programs whose lines are there, seconds: load, save, both
of() { awk '{ for (k = 1; k <= 2; k++) { key = k == 1 ? "\"timing/load\": " : "\"timing/save\": "
	v = $0; if (sub(".*" key, "", v) != 1) { print FILENAME ": no timing" > "/dev/stderr"; exit 1 } sub(/[,}].*/, "", v); s[k] += v } }
	END { printf "%.3f %.3f %.3f\n", s[1], s[2], s[1] + s[2] }' "$@"; }

cat >"$disk/shape.json" <<END
{"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
 "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
 "rope_theta": 100000.0, "tie_word_embeddings": true}
END
cat >"$disk/recipe.yaml" <<END
policy:
  precision: bfloat16
  train_global_batch_size: 64
  generation: {max_new_tokens: 256}
  sequence_packing: {train_mb_tokens: 2048, logprob_mb_tokens: 2048}
grpo: {num_prompts_per_step: 16, num_generations_per_prompt: 4}
loss_fn: {reference_policy_kl_penalty: 0.0}
env: {math: {reward_functions: [{name: length, weight: 1.0}]}}
data: {train: {data_path: $disk/questions.jsonl}}
END
awk 'BEGIN { for (i = 0; i < 64; i++) printf "{\"prompt\": \"How much is %d and %d, and why?\", \"answer\": \"%d\"}\n", i, 7 * i, 8 * i }' \
	>"$disk/questions.jsonl"
head -n 2 "$disk/questions.jsonl" >"$disk/few.jsonl"

# prepare: a checkpoint with optimizer state in this folder
prepare() {
	cairn import-weights --init "$disk/shape.json" --tokenizer bytes --chat-template plain --dtype bfloat16 --seed 1 -o start >/dev/null
	cairn train-step start --data "$disk/few.jsonl" --steps 1 -c "$disk/recipe.yaml" policy.train_global_batch_size=2 -o old >/dev/null
	rm -rf start
}
# round: as many samples as in the step, with one new token each; those of the step for score
round() {
	cairn rollout old -c "$disk/recipe.yaml" policy.generation.max_new_tokens=1 -q -o many >line.1
	cairn score samples -c "$disk/recipe.yaml" --policy old -o scored2 >line.2
	cairn train-step old --data "$disk/few.jsonl" --steps 1 -c "$disk/recipe.yaml" policy.train_global_batch_size=2 -q -o new >line.3
	of line.1 line.2 line.3 >>"times"
	du -sbc many scored2 new | awk 'END { print $1 }' >bytes
	rm -rf many scored2 new
}
median() { sort -g -k "$2" "$1" | awk '{ l[NR] = $0 } END { print l[int((NR + 1) / 2)] }'; }
each() { # each COMMAND...: ten rounds, the command after each; the median in $load, $save and $both
	i=0
	while [ $i -lt "$rounds" ]; do i=$((i + 1)); round; "$@"; done
	median times 3 >middle
	read -r load save both <middle
}

# -- memory-backed -------------------------------------------------------------------------------------------------
name="load plus save in a GRPO step, SmolLM2's shape (64 samples, up to 256 new tokens), median of $rounds"
free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }')
if [ "${free:-0}" -lt 8192 ]; then
	row "$name, memory-backed" "not run: /dev/shm has ${free:-0} MiB free, wanted 8192" "< 10 % of the step" 0
else
	mkdir "$memory"
	cd "$memory"
	prepare
	a=$(now)
	cairn rollout old -c "$disk/recipe.yaml" -q -o samples >line.1
	cairn score samples -c "$disk/recipe.yaml" --policy old -o scored >line.2
	cairn train-step old scored -c "$disk/recipe.yaml" -o new >line.3
	whole=$(awk "BEGIN { printf \"%.1f\", $(now) - $a }")
	in_step=$(of line.1 line.2 line.3 | cut -d ' ' -f 3)
	rm -rf new
	each :
	row "$name, memory-backed" "load $load + save $save s: $(awk "BEGIN { printf \"%.1f\", 100 * $both / $whole }") % of a step of $whole s\
 (timed once; $in_step s were load and save)" "< 10 %" "$both < 0.1 * $whole"
	cd "$disk"
	rm -rf "$memory"
fi

# -- on disk: beside the time that the same bytes take to be written and synced, measured between the rounds --------
cd "$disk"
prepare
cairn rollout old -c "$disk/recipe.yaml" -q -o samples >line.1
raw() {
	a=$(now)
	cat old/*.h5 | dd of=raw bs=1M iflag=fullblock conv=fsync 2>/dev/null
	awk "BEGIN { print $(stat -c %s raw) / ($(now) - $a) }" >>rates
	rm -f raw
}
each raw
rate=$(median rates 1)
limit=$(awk "BEGIN { printf \"%.2f\", 1.25 * $(cat bytes) / $rate }")
row "$name, on disk" "load $load + save $save s; $(awk "BEGIN { printf \"%.0f MB, dd conv=fsync %.0f MB/s\", $(cat bytes) / 1e6, $rate / 1e6 }")" \
	"< $limit s = 1.25 x bytes / rate" "$both < $limit"
