#!/bin/sh
# From samples of another engine to the next weights: one step of three updates (leave-one-out and divided, importance weights, dual
# clip, KL, clipped norm, AdamW, warm-up) beside what PyTorch made of it in float64; recorded by tests/oracle/grpo_step.py --record.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
data=$CAIRN_ROOT/tests/data/grpo-step

step() { # step OUT SCORED KEY=VALUE...
	out=$1 scored=$2; shift 2
	run 0 "a step: $out" cairn train-step start "$scored" -c "$data/recipe.yaml" -o "$out" "$@"
}
# worst OUT: tensors of weights that differ, the largest difference relative to its tensor
worst() {
	cairn inspect --diff "$1" expected | awk '$1 == "slot" { slot = $2; n += slot == "weight" }
		$1 == "relative" && slot == "weight" && $2 > w { w = $2 } $1 == "not_finite" { bad += $2 } END { print n + 0, bad ? "nan" : w + 0 }'
}
near() { worst "$1" | awk '{ exit !($1 >= 15 && $2 != "nan" && $2 < 1e-6) }'; ok $? "$1: weights as PyTorch's, within 1e-6 of each tensor"; }
far() { worst "$1" | awk '{ exit !($1 == 25 && $2 > 1e-5) }'; ok $? "$1: weights are others"; }

for m in start reference expected; do
	run 0 "import of $m" cairn import-weights "$data/$m" -o $m
done
run 0 "score" cairn score "$data/samples.jsonl" -c "$data/recipe.yaml" --policy start --reference reference --reward exact=1 -o scored
step next scored; near next
has out '"train/num_updates": 3' "three updates"
has out '"train/global_valid_seqs": 18' "of 18 sequences that have a token that counts"
for isa in portable avx2; do
	cairn score "$data/samples.jsonl" -c "$data/recipe.yaml" --policy start --reference reference --reward exact=1 --isa $isa -o scored-$isa >out 2>err ||
		{ skip "$isa" "$(cat err)"; continue; }
	step $isa scored-$isa --isa $isa; near $isa
done

# Controls: what the comparison would notice.
far start
step one-clip scored loss_fn.ratio_clip_c=null; far one-clip
step more-kl scored loss_fn.reference_policy_kl_penalty=0.06; far more-kl
step no-decay scored policy.optimizer.kwargs.weight_decay=0.0; far no-decay
step longer scored policy.max_grad_norm=0.6; far longer
tap_done
