#!/bin/sh
# What the README calls not built yet says so in one line, with 69, and leaves nothing behind.
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
tiny_model start
tiny_data
cairn rollout start --prompts train.jsonl -o samples policy.generation.max_new_tokens=2 >/dev/null

lacks() { # lacks WHAT COMMAND...
	what=$1; shift
	run 69 "$what" "$@"
	is "$(wc -l <err)" 1 "$what: one line"
	[ ! -e x ] && [ ! -e x.tmp ]
	ok $? "$what: nothing is left"
}
for a in dpo rm distillation; do lacks "$a" cairn train-step start samples -o x --algorithm $a; done
lacks "a teacher" cairn score samples -o x --teacher start
lacks "GGUF out" cairn export start -o x --format gguf
lacks "adapters out" cairn export start -o x --base start
lacks "adapters in" cairn import-weights --init model.json -o x --base start
lacks "CUDA" cairn rollout start --prompts train.jsonl -o x --device cuda
lacks "many jobs" cairn --jobs -
for program in "rollout start --prompts train.jsonl" "score samples" "train-step start --data train.jsonl"; do
	# shellcheck disable=SC2086
	lacks "ranks of another launcher: ${program%% *}" env OMPI_COMM_WORLD_SIZE=2 cairn $program -o x
done
tap_done
