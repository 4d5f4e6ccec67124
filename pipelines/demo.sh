#!/bin/sh
# demo.sh [DIR]: the whole job on one machine in some minutes.  A model of about a million parameters from a random start
# learns two-number addition by SFT, half well, and is then improved by GRPO with the exact-answer reward.
#
# Last line on stdout: {"accuracy_before", "accuracy_after", "n", "steps", "seconds", "export", ...}.
# With CAIRN_SCORE_OPTIONS='--shuffle-rewards 7' it is the control: the rewards are shuffled within each batch.
set -eu
. "$(dirname "$0")/lib.sh"

dir=${1:-demo}
recipes=$here/recipes
t0=$(date +%s)
mkdir -p "$dir"

# Sums of two numbers below 100.  A hash of the pair decides who is asked at the end and never seen before.
questions() { # questions train|held COUNT
	awk -v which="$1" -v count="$2" 'BEGIN {
		srand(7)
		for (a = 0; a < 100; a++) for (b = 0; b < 100; b++) {
			held = (a * 37 + b * 101 + int(a * b / 7)) % 8 == 0
			if (held == (which == "held")) pair[n++] = a " " b
		}
		for (i = n - 1; i > 0; i--) { j = int(rand() * (i + 1)); t = pair[i]; pair[i] = pair[j]; pair[j] = t }
		for (i = 0; i < n && i < count; i++) {
			split(pair[i], q, " ")
			printf "{\"prompt\": \"%d+%d=\", \"answer\": \"%d\"}\n", q[1], q[2], q[1] + q[2]
		}
	}'
}
questions train 8000 >"$dir/train.jsonl"
questions held 600 >"$dir/held.jsonl"
n=$(wc -l <"$dir/held.jsonl")
both=$(cat "$dir/train.jsonl" "$dir/held.jsonl" | sort | uniq -d | wc -l)
say "$(wc -l <"$dir/train.jsonl") questions to learn from, $n held out, $both in both"
[ "$both" -eq 0 ] && [ "$n" -ge 500 ]

start=$dir/start
[ -e "$start/manifest.json" ] || cairn import-weights --init "$recipes/demo-model.json" --tokenizer bytes --chat-template plain \
	--seed 1 -o "$start" >/dev/null

say "SFT from a random start"
"$here/sft.sh" "$recipes/demo-sft.yaml" "policy.model_name=$start" "data.train.data_path=$dir/train.jsonl" \
	"checkpointing.checkpoint_dir=$dir/sft"
taught=$(cairn inspect "$dir/sft" --latest)

say "GRPO from there"
"$here/grpo.sh" "$recipes/demo-grpo.yaml" "policy.model_name=$taught" "data.train.data_path=$dir/train.jsonl" \
	"data.validation.data_path=$dir/held.jsonl" "checkpointing.checkpoint_dir=$dir/grpo"
last=$(cairn inspect "$dir/grpo" --latest)
steps=$(cairn inspect "$dir/grpo" --latest --step)

accuracy() { cairn inspect "$dir/grpo/validation/$(number "$1")" --json | sed -n 's/.*"validation\/accuracy": \([0-9.e-]*\).*/\1/p' | head -n 1; }
out=$dir/export
[ -e "$out" ] || cairn export "$last" -o "$out" >/dev/null
printf '{"accuracy_before": %s, "accuracy_after": %s, "n": %d, "steps": %d, "seconds": %d, "export": "%s", "control": %s}\n' \
	"$(accuracy 0)" "$(accuracy "$steps")" "$n" "$steps" "$(($(date +%s) - t0))" "$out" \
	"$([ -n "${CAIRN_SCORE_OPTIONS:-}" ] && echo true || echo false)"
