#!/bin/sh
# sft.sh: a short run, its losses, what it keeps, going on.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
sft=$CAIRN_ROOT/pipelines/sft.sh CAIRN=$(command -v cairn)
export CAIRN
digests() { cairn inspect "$1" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }
files() { find "$1" -type f ! -path '*/logs/*' -exec sha256sum {} + | sort; }
steps() { ( cd "$1" && find . -maxdepth 1 -name 'step-*' ! -name '*.json' | sed 's,^./,,' | sort | xargs ); }
loss() { sed -n 's/.*"validation\/val_loss": \([0-9.e-]*\).*/\1/p' "run/validation/step-00000$1.json"; }

tiny_model start; tiny_data; tiny_recipe >r.yaml
run 0 "four steps" sh "$sft" r.yaml sft.val_period=2 sft.val_at_start=true
is "$(cd run/validation && echo *)" "step-000000.json step-000002.json step-000004.json" "a loss every two, and at the start"
awk -v a="$(loss 0)" -v b="$(loss 4)" 'BEGIN { exit !(b > 0 && b < a) }'; ok $? "it falls, from $(loss 0) to $(loss 4)"
is "$(cairn inspect run --latest --step)" 4 "--latest"
is "$(steps run/checkpoints)" "step-000000 step-000004" "one checkpoint is kept beside the first"
is "$(wc -l <run/metrics.jsonl)" 5 "metrics, one line a step"
files run >before
run 0 "run again" sh "$sft" r.yaml sft.val_period=2 sft.val_at_start=true
files run | diff - before >difference; ok $? "nothing changes"
run 78 "another recipe" sh "$sft" r.yaml sft.val_period=4
has err 'val_period' "is refused"

# Two steps a checkpoint, three and one, or all in one: the same bits.
for period in 2 3 4; do
	run 0 "a checkpoint every $period steps" sh "$sft" r.yaml checkpointing.save_period=$period checkpointing.checkpoint_dir=p$period
	is "$(digests p$period/checkpoints/step-000004)" "$(digests run/checkpoints/step-000004)" "gives the same bits"
done

run 0 "a loss between two checkpoints that are kept" sh "$sft" r.yaml sft.val_period=2 checkpointing.save_period=3 checkpointing.checkpoint_dir=v
is "$(cd v/validation && echo *)" "step-000002.json step-000004.json" "has a checkpoint of its own"
is "$(digests v/checkpoints/step-000004)" "$(digests run/checkpoints/step-000004)" "and changes no bit"
# One script for all: what it says of itself, and what it does not take.
for script in grpo sft eval report hot; do
	run 0 "$script.sh --help" sh "$CAIRN_ROOT/pipelines/$script.sh" --help
	has out "^$script.sh [A-Z]" "says how it is called"
	run 64 "$script.sh --hlep" sh "$CAIRN_ROOT/pipelines/$script.sh" --hlep
	has err "^usage: $script.sh [A-Z]" "likewise"
	[ ! -s out ]; ok $? "on standard error alone"
done
# A cairn that is found in PATH.
mkdir alone && cp "$CAIRN_ROOT"/pipelines/*.sh "$CAIRN_ROOT"/pipelines/*.mk alone
run 0 "sft.sh away from its programs" env -u CAIRN sh alone/sft.sh r.yaml sft.max_num_steps=1 checkpointing.checkpoint_dir=alone/run
run 0 "experiment.mk likewise" env -u CAIRN make -s -f alone/experiment.mk RUN=alone/made RECIPE=r.yaml STEPS=1
run 78 "no training data" sh "$sft" r.yaml --unset data.train.data_path checkpointing.checkpoint_dir=nodata
has err 'data.train.data_path' "names the key"

# A validation that fails is not passed over.
run 66 "no validation file" sh "$sft" r.yaml data.validation.data_path=nowhere.jsonl sft.val_at_start=true checkpointing.checkpoint_dir=bad
[ ! -e bad/validation/step-000000.json ]; ok $? "leaves no loss"

# Killed between a step and its validation.
run 0 "a run" sh "$sft" r.yaml sft.val_period=2 checkpointing.checkpoint_dir=cut checkpointing.keep_top_k=null
cp -r cut whole && rm -r cut/validation/step-000002.json cut/checkpoints/step-00000[34]
run 0 "that lost its end goes on" sh "$sft" r.yaml sft.val_period=2 checkpointing.checkpoint_dir=cut checkpointing.keep_top_k=null
diff -r -x logs cut whole >difference; ok $? "and is as before"
tap_done
