#!/bin/sh
# speed.sh FOLDER: the rows of `make rows` that are times; FOLDER is new.  Programs are started as a user starts them.
#
# Rates are differences between a longer and a shorter run, so that loading and saving do not count, and are given twice: by the
# clock, and by user time of processors over 2 threads, which other work on the machine lengthens less.  The better one is judged.
# shellcheck shell=sh
set -eu
mkdir -p "$1"
cd "$1"
row() { # row NAME VALUE GOAL CONDITION-FOR-AWK
	verdict=$(awk "BEGIN { print ($4) ? \"ok\" : \"short\" }")
	printf 'ROW\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$verdict"
}
now() { date +%s.%N; }
field() { sed -n "s|.*\"$1\": \"*\\([^\",}]*\\).*|\\1|p" out; }

# -- start: median of 20 -----------------------------------------------------------------------------------
cat >tiny.json <<END
{"model_type": "llama", "vocab_size": 259, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": true}
END
cairn import-weights --init tiny.json --tokenizer bytes --seed 1 -o tiny >/dev/null
echo '{"prompt": "hello"}' >hello.jsonl
# spent 1|2: processor seconds of all programs so far: user, or user and system.
spent() {
	times >so-far
	awk -v n="$1" 'NR == 2 { for (i = 1; i <= n; i++) { split($i, p, /[ms]/); s += p[1] * 60 + p[2] } print s }' so-far
}
# start WHAT COMMAND...: seconds by the clock, median of 20, and of processors, mean; judged by the clock unless more runs here than
# there are processors.
start() {
	what=$1 i=0; shift
	spent 2 >before
	while [ $i -lt 20 ]; do
		i=$((i + 1)) a=$(now)
		"$@" >out
		awk "BEGIN { print $(now) - $a }" >>clock
		rm -rf hello.out
	done
	spent 2 >after
	w=$(sort -g clock | sed -n 10p) c=$(awk 'NR == FNR { b = $1; next } { print ($1 - b) / 20 }' before after)
	rm -f clock
	busy=$(awk -v n="$(getconf _NPROCESSORS_ONLN)" '{ print ($1 > n) }' /proc/loadavg)
	row "start: $what, median of 20, s" "$w by the clock, $c by processor time$([ "$busy" = 0 ] || echo ', busy machine')" "< 0.1" \
		"$w < 0.1 || $busy && $c < 0.1"
}
start "cairn inspect CKPT" cairn inspect tiny
start "cairn rollout of one token, 1 MB model" cairn rollout tiny --prompts hello.jsonl --split validation -o hello.out \
	policy.generation.max_new_tokens=1

# -- floors: SmolLM2's shape, bfloat16, 2 threads -------------------------------------------------------------
cat >shape.json <<END
{"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
 "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
 "rope_theta": 100000.0, "tie_word_embeddings": true}
END
cairn import-weights --init shape.json --tokenizer bytes --chat-template plain --dtype bfloat16 --seed 1 -o shape >/dev/null
awk 'BEGIN { for (i = 0; i < 32; i++) { printf "{\"messages\": [{\"role\": \"user\", \"content\": \"q%d\"}, {\"role\": \"assistant\", \"content\": \"", i
	for (j = 0; j < 250; j++) printf "%c", 97 + (i * 31 + j * j * 7 + j) % 26; print "\"}]}" } }' >sft.jsonl
awk 'BEGIN { for (i = 0; i < 32; i++) printf "{\"prompt\": \"prompt number %d\"}\n", i }' >decode.jsonl
awk 'BEGIN { for (i = 0; i < 5; i++) { printf "{\"prompt\": \"%d", i; for (j = 0; j < 500; j++) printf "%c", 97 + (i * 13 + j * j * 5 + j) % 26; print "\"}" } }' >prefill.jsonl
head -n 1 prefill.jsonl >prefill1.jsonl
# timed COMMAND...: seconds by the clock and of processors in $wall and $cpu, the result line in out
timed() {
	spent 1 >before; a=$(now)
	"$@" >out
	wall=$(awk "BEGIN { print $(now) - $a }"); spent 1 >after
	cpu=$(awk 'NR == FNR { b = $1; next } { print $1 - b }' before after)
}
# rate NAME GOAL TOKENS: between the run of before ($wall0, $cpu0) and the present one
rate() {
	awk "BEGIN { w = $wall - $wall0; c = ($cpu - $cpu0) / 2; printf \"%.0f %.0f\\n\", (w > 0 ? ($3) / w : 0), (c > 0 ? ($3) / c : 0) }" >rates
	read -r w c <rates
	row "$1, tokens/s" "$w by the clock, $c by user time of processors" "$2" "$w >= $2 || $c >= $2"
}
model="policy.precision=bfloat16 --threads 2"
# shellcheck disable=SC2086
train() { rm -rf next; timed cairn train-step shape --data sft.jsonl --steps "$1" -o next $model policy.train_global_batch_size=8 \
	policy.train_micro_batch_size=4 policy.max_total_sequence_length=512; wall=$(field timing/train/total_step_time); }
train 1; wall0=$wall cpu0=$cpu tokens0=$(awk "BEGIN { print $(field performance/tokens_per_sec) * $wall }")
train 2
rate "train-step of SmolLM2's shape in bfloat16, 2 threads" 300 "$(field performance/tokens_per_sec) * $wall - $tokens0"
# shellcheck disable=SC2086
roll() { rm -rf s; timed cairn rollout shape --prompts "$1" --split validation -o s $model "policy.generation.max_new_tokens=$2"; }
made() { awk "BEGIN { print $(field validation/mean_gen_tokens_per_sample) * $(field validation/num_samples) }"; }
roll decode.jsonl 8; wall0=$wall cpu0=$cpu tokens0=$(made)
roll decode.jsonl 32
rate "decode of 32 sequences, SmolLM2's shape in bfloat16, 2 threads" 400 "$(made) - $tokens0"
roll prefill1.jsonl 1; wall0=$wall cpu0=$cpu tokens0=$(field validation/total_num_tokens)
roll prefill.jsonl 1
rate "prefill, SmolLM2's shape in bfloat16, 2 threads" 1000 "$(field validation/total_num_tokens) - $tokens0"
