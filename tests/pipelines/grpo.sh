#!/bin/sh
# grpo.sh and experiment.mk: a short run, what it leaves, what it keeps, going on, being refused.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
grpo=$CAIRN_ROOT/pipelines/grpo.sh CAIRN=$(command -v cairn)
export CAIRN
digests() { cairn inspect "$1" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }
files() { find "$1" -type f ! -path '*/logs/*' -exec sha256sum {} + | sort; }
steps() { ( cd "$1" && find . -maxdepth 1 -name 'step-*' ! -name '*.json' | sed 's,^./,,' | sort | xargs ); }

tiny_model start; tiny_data; tiny_recipe >r.yaml
files start >start.files

run 0 "four steps, a validation every two" sh "$grpo" r.yaml grpo.max_num_steps=4 grpo.val_at_start=true
has err '^step 1 .*reward' "a line a step"
has err '^step 4 .*val accuracy' "with the validation of its own step"
is "$(steps run/samples)" "step-000001 step-000002 step-000003 step-000004" "samples"
is "$(steps run/scored)" "$(steps run/samples)" "scored samples"
is "$(steps run/validation)" "step-000000 step-000002 step-000004" "validations"
is "$(steps run/checkpoints)" "step-000000 step-000004" "of the checkpoints the first, the newest and the best stay"
is "$(wc -l <run/metrics.jsonl)" 5 "metrics, one line a step"
for s in 0 1 2 3 4; do grep -q "^{\"step\": ${s}[,}]" run/metrics.jsonl || break; done
[ "$s" = 4 ] && grep -q '"step": 4,.*train/reward' run/metrics.jsonl; ok $? "each with its step"
is "$(cairn inspect run --latest)" "run/checkpoints/step-000004" "--latest"
is "$(cairn inspect run --latest --step)" 4 "its step"
is "$(cairn inspect run --best --step)" 4 "--best, of equal ones the newest"
for d in run/checkpoints/*[0-9] run/samples/* run/scored/* run/validation/*; do cairn inspect "$d" --verify >/dev/null || break; done
ok $? "everything verifies"
files start | diff - start.files >difference; ok $? "the model that it started from is as it was"

files run >before
run 0 "a finished run, run again" sh "$grpo" r.yaml grpo.max_num_steps=4 grpo.val_at_start=true
files run | diff - before >difference; ok $? "is not touched"
run 0 "by its own recipe too" sh "$grpo" run/recipe.yaml
files run | diff - before >difference; ok $? "neither"
run 78 "another recipe under this name" sh "$grpo" r.yaml grpo.max_num_steps=5 grpo.val_at_start=true
has err 'max_num_steps: 5' "is refused, and the difference shown"
files run | diff - before >difference; ok $? "nothing is touched"
run 64 "no recipe" sh "$grpo"
run 64 "an option for a recipe" sh "$grpo" --hlep
has err '^usage: grpo.sh RECIPE' "shows the usage"
run 66 "a recipe that is not there" sh "$grpo" nowhere.yaml
run 78 "a key that is unknown" sh "$grpo" r.yaml grpo.max_num_stepz=5
has err 'max_num_steps' "with the nearest one"
run 0 "names with blanks in them" sh "$grpo" r.yaml grpo.max_num_steps=1 "checkpointing.checkpoint_dir=a run"
cairn inspect --diff run/samples/step-000001 "a run/samples/step-000001" >/dev/null; ok $? "change nothing"
run 78 "no model" sh "$grpo" r.yaml policy.model_name=null checkpointing.checkpoint_dir=none
run 66 "a model that is not there" sh "$grpo" r.yaml policy.model_name=nowhere checkpointing.checkpoint_dir=none2
[ ! -e none2/checkpoints/step-000000 ]; ok $? "leaves no checkpoint"

# A program that fails ends the script with its status.
run 66 "training data that are not there" sh "$grpo" r.yaml data.train.data_path=nowhere.jsonl checkpointing.checkpoint_dir=none3
is "$(steps none3/checkpoints)" "step-000000" "no step is made"

# The recipe that a run fixes means what the one given means: float32 weights are trained as float32 by both.
sed '/precision/d' r.yaml >bare.yaml
run 0 "no precision in the recipe" sh "$grpo" bare.yaml grpo.max_num_steps=1 checkpointing.checkpoint_dir=bare
cairn rollout start -c bare.yaml -o bare.samples >/dev/null
cairn score bare.samples -c bare.yaml --policy start --reference start -o bare.scored >/dev/null
run 0 "the same step by hand" cairn train-step start bare.scored -c bare.yaml -o bare.next
is "$(digests bare.next)" "$(digests bare/checkpoints/step-000001)" "the same bits"
has_precision=$(cairn inspect bare.next --json | grep -o '"precision": "[a-z0-9]*"')
is "$has_precision" '"precision": "float32"' "in float32"

# The copy of the first checkpoint was interrupted.
mkdir -p half/checkpoints/step-000000.copy/hf && cp start/manifest.json half/checkpoints/step-000000.copy/
run 0 "over a copy that was cut short" sh "$grpo" r.yaml grpo.max_num_steps=1 checkpointing.checkpoint_dir=half
is "$(digests half/checkpoints/step-000000)" "$(digests start)" "the run begins with the whole one"
is "$(ls half/checkpoints)" "step-000000
step-000001" "and the leftover is gone"

# All checkpoints, and every second one.
run 0 "keep_top_k null" sh "$grpo" r.yaml checkpointing.keep_top_k=null checkpointing.checkpoint_dir=all
is "$(steps all/checkpoints)" "step-000000 step-000001 step-000002 step-000003" "keeps them all"
run 0 "save_period 2" sh "$grpo" r.yaml checkpointing.keep_top_k=2 checkpointing.save_period=2 checkpointing.checkpoint_dir=two
is "$(steps two/checkpoints)" "step-000000 step-000002 step-000003" "keeps every second one, and the newest"
is "$(digests two/checkpoints/step-000003)" "$(digests all/checkpoints/step-000003)" "with the same bits"

# From a trained checkpoint: its weights alone, or all of it.
trained=all/checkpoints/step-000002
position() { cairn inspect "$1" --json | grep -oE '"(step|updates)": [0-9]+|"position": [0-9]+' | head -n 3 | sed 's/.*: //' | xargs; }
run 0 "from a trained checkpoint" sh "$grpo" r.yaml policy.model_name=$trained grpo.max_num_steps=1 checkpointing.checkpoint_dir=anew
has err "$trained was trained before" "says so"
is "$(digests anew/checkpoints/step-000000 | head -n 1)" "$(digests $trained | head -n 1)" "begins with its weights"
is "$(position anew/checkpoints/step-000000) $(cairn inspect anew/checkpoints/step-000000 --json | grep -o '"optimizer": [a-z]*')" \
	'0 0 "optimizer": null' "and nothing else of it"
is "$(position anew/checkpoints/step-000001)" "1 2 4" "step 1 is step 1 and takes the first prompts"
run 0 "told to keep its state" sh "$grpo" r.yaml policy.model_name=$trained grpo.max_num_steps=1 cairn.keep_training_state=true \
	checkpointing.checkpoint_dir=further
is "$(digests further/checkpoints/step-000000)" "$(digests $trained)" "begins with all of it"
is "$(position further/checkpoints/step-000001)" "$(position all/checkpoints/step-000003)" "and makes the step that comes after it"
sed 's,model_name: start$,model_name: all/checkpoints/step-000002,' r.yaml >r3.yaml
run 0 "by make" make -f "$CAIRN_ROOT/pipelines/experiment.mk" RUN=mk4 RECIPE=r3.yaml STEPS=1 CAIRN="$CAIRN"
is "$(digests mk4/checkpoints/step-000001)" "$(digests anew/checkpoints/step-000001)" "the same as without being told"

# One algorithm and one script at a time.
sh "$CAIRN_ROOT/pipelines/sft.sh" r.yaml checkpointing.checkpoint_dir=taught sft.max_num_steps=1 2>/dev/null; ok $? "an SFT run"
files taught >before
run 78 "grpo.sh on it" sh "$grpo" taught/recipe.yaml
has err 'taught: this run was begun by sft.sh; grpo.sh wants another' "is refused"
files taught | diff - before >difference; ok $? "and touches nothing"
for i in 1 2; do { sh "$grpo" r.yaml grpo.max_num_steps=2 checkpointing.checkpoint_dir=both 2>err.$i; echo $? >status.$i; } & done
wait
is "$(sort -n status.1 status.2 | xargs)" "0 75" "of two in the same instant one works"
has "$(grep -lx 75 status.1 status.2 | sed 's/status/err/')" 'both: another script works in this run' "the other says why not"
is "$(digests both/checkpoints/step-000002)" "$(digests all/checkpoints/step-000002)" "the run is as by one"

# The same by make.
run 0 "experiment.mk" make -f "$CAIRN_ROOT/pipelines/experiment.mk" RUN=mk RECIPE=r.yaml STEPS=3 CAIRN="$CAIRN"
is "$(digests mk/checkpoints/step-000003)" "$(digests all/checkpoints/step-000003)" "gives the same weights and optimizer"
run 0 "again" make -f "$CAIRN_ROOT/pipelines/experiment.mk" RUN=mk RECIPE=r.yaml STEPS=3 CAIRN="$CAIRN"
has out 'Nothing to be done' "has nothing to do"
run 2 "LAG" make -f "$CAIRN_ROOT/pipelines/experiment.mk" RUN=mk2 RECIPE=r.yaml STEPS=3 LAG=1
has err 'not built' "is not built"
cairn export start -o hf >/dev/null
sed 's/model_name: start$/model_name: hf/' r.yaml >r2.yaml
run 0 "from a folder" make -f "$CAIRN_ROOT/pipelines/experiment.mk" RUN=mk3 RECIPE=r2.yaml STEPS=1 CAIRN="$CAIRN"
is "$(digests mk3/checkpoints/step-000001)" "$(digests all/checkpoints/step-000001)" "too"
tap_done
