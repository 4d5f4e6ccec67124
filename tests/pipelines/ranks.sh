#!/bin/sh
# The pipelines over ranks: CAIRN_LAUNCH, a run whose ranks and layout change between steps, what is refused, a rank that dies.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
need_ranks "pipelines over ranks"
pipelines=$CAIRN_ROOT/pipelines CAIRN=$(command -v cairn)
export CAIRN
printf '%s\n' '. "$CAIRN_ROOT/tests/lib/ranks.sh"' 'echo "$*" >>launched' 'ranks "$@"' >launch
over() { n=$1; shift; CAIRN_LAUNCH="sh launch $n" "$@"; }
layout() { cairn inspect "$1" --json | grep -oE '"(tp|pp|dp)": [0-9]+' | head -n 3 | sed 's/.*: //' | xargs; }
lines() { cairn inspect "$1" --jsonl; }
near() { # near A B WHAT: no tensor of the two differs by more than 1e-5 of its norm
	cairn inspect --diff "$1" "$2" --json >differ 2>err
	awk -F'"relative": ' '{ for (i = 2; i <= NF; i++) if ($i + 0 > 1e-5) bad = 1 } END { exit !(NR && !bad) }' differ; ok $? "$3"
}

tiny_model start; tiny_data
tiny_recipe | sed 's/precision: bfloat16/precision: float32/; s/max_num_steps: 3/max_num_steps: 5/; s/keep_top_k: 1/keep_top_k: null/
	s/^policy:/&\n  megatron_cfg: {enabled: true, optimizer: {lr: 1.0e-3}, scheduler: {lr_warmup_iters: 0}}/' >both.yaml
grep -v '^sft:' both.yaml >r.yaml
sed '/^grpo:/,/^sft:/{/^sft:/!d}' both.yaml >sft.yaml
tp=policy.megatron_cfg.tensor_model_parallel_size

# -- one run on 1, 4, 3 ranks ---------------------------------------------------------------------------
run 0 "five steps on one rank" sh "$pipelines/grpo.sh" r.yaml checkpointing.checkpoint_dir=one
run 0 "two steps on one rank" env CAIRN_STOP_AFTER=2 sh "$pipelines/grpo.sh" r.yaml
is "$(cairn inspect run --latest --step)" 2 "and no more"
[ ! -e launched ]; ok $? "without a launcher"
CAIRN_STOP_AFTER=4 run 0 "two on four: TP 2, DP 2" over 4 sh "$pipelines/grpo.sh" r.yaml $tp=2
has err 'run goes on in another layout' "says so"
has launched '^4 .*cairn rollout ' "rollout is launched"
has launched '^4 .*cairn score ' "so is score"
has launched '^4 .*cairn train-step ' "so is train-step"
is "$(grep -c inspect launched)" 0 "nothing else is"
run 0 "one on three: DP 3" over 3 sh "$pipelines/grpo.sh" r.yaml
for s in 2:1:1 3:2:2 4:2:2 5:1:3; do
	c=run/checkpoints/step-00000${s%%:*} want=${s#*:}
	is "$(layout "$c")" "${want%:*} 1 ${want#*:}" "step ${s%%:*}: TP ${want%:*}, DP ${want#*:}"
	run 0 "every byte of it" cairn inspect "$c" --verify
done
is "$(cut -d, -f1 run/metrics.jsonl | tr -dc '0-9\n' | xargs)" "0 1 2 3 4 5" "metrics of every step, once"
is "$(grep -c '"train/logprob_bits_different": 0[,}]' run/metrics.jsonl)" 5 "all trained on what was sampled, to the bit"
for what in samples scored; do
	lines one/$what/step-000003 >want; lines run/$what/step-000003 | cmp -s - want
	ok $? "$what of step 3, on four ranks, are those of one rank"
done
near one/checkpoints/step-000003 run/checkpoints/step-000003 "as are weights and moments, to 1e-5"
run 78 "another recipe in anything else" sh "$pipelines/grpo.sh" r.yaml grpo.num_prompts_per_step=2

# -- what is refused; a rank that dies ----------------------------------------------------------------------
rm -f launched
run 64 "three ranks for TP 2" over 3 sh "$pipelines/grpo.sh" r.yaml $tp=2 checkpointing.checkpoint_dir=odd
has err '3 ranks, but tp 2.*multiple of 2: mpirun -n 4' "says what to change"
is "$(wc -l <launched)" 1 "and is not tried again"
cat >dying <<-'END'
	. "$CAIRN_ROOT/tests/lib/ranks.sh"
	case "$*" in *train-step*) [ -e died ] || kill='[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export CAIRN_TEST_KILL=3' ;; esac
	[ -z "${kill:-}" ] || touch died
	ranks 2 sh -c "${kill:-:}"'; exec "$@"' sh "$@"
END
CAIRN_LAUNCH="sh dying" sh "$pipelines/grpo.sh" r.yaml grpo.max_num_steps=1 checkpointing.checkpoint_dir=odd2 >out 2>err; rc=$?
[ $rc -ne 0 ] && [ -e died ] && [ ! -e odd2/checkpoints/step-000001 ]; ok $? "a rank is killed: status $rc, no checkpoint"
CAIRN_LAUNCH="sh dying" run 0 "run again" sh "$pipelines/grpo.sh" r.yaml grpo.max_num_steps=1 checkpointing.checkpoint_dir=odd2
run 0 "the step is there" cairn inspect odd2/checkpoints/step-000001 --verify

# -- the other scripts ------------------------------------------------------------------------------------------
run 0 "experiment.mk on two ranks" make -s -f "$pipelines/experiment.mk" RUN=made RECIPE=r.yaml STEPS=1 CAIRN="$CAIRN" LAUNCH='sh launch 2'
is "$(layout made/checkpoints/step-000001)" "1 1 2" "DP 2"
near one/checkpoints/step-000001 made/checkpoints/step-000001 "the step of grpo.sh"
run 0 "sft.sh on two ranks" over 2 sh "$pipelines/sft.sh" sft.yaml sft.max_num_steps=2 checkpointing.checkpoint_dir=taught
is "$(layout taught/checkpoints/step-000002)" "1 1 2" "DP 2"
tap_done
