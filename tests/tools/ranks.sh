#!/bin/sh
# train-step, rollout and score as several ranks: the same bits twice, one rank's numbers, goings-on in another layout, deaths.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
need_ranks "programs over several ranks"
number() { sed -n "s|.*\"$1\": \([-+0-9.einf]*\).*|\1|p" "${2:-out}"; }
close_to() { awk -v x="$1" -v y="$2" 'BEGIN { d = x - y; exit !(x ~ /[0-9]/ && (d < 0 ? -d : d) <= 1e-5 * (y < 0 ? -y : y)) }'; }
key=policy.megatron_cfg
tp="$key.enabled=true $key.tensor_model_parallel_size" pp="$key.enabled=true $key.pipeline_model_parallel_size"
cp="$key.enabled=true $key.context_parallel_size" sp=$key.sequence_parallel=true

# -- supervised steps: DP ----------------------------------------------------------------------------
tiny_model start; tiny_data
tiny_recipe >r.yaml
# Some ranks have no bin at all in some steps.
steps="-c r.yaml --data train.jsonl policy.precision=float32 policy.train_global_batch_size=5 policy.sequence_packing.train_mb_tokens=40"
digests() { cairn inspect "$1" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }
# near A B WHAT: no tensor of the two differs by more than 1e-5 of its norm.
near() {
	cairn inspect --diff "$1" "$2" --json >differ 2>err
	awk -F'"relative": ' '{ for (i = 2; i <= NF; i++) if ($i + 0 > 1e-5) bad = 1 } END { exit !(NR && !bad) }' differ; ok $? "$3"
}
# shellcheck disable=SC2086
{
cairn train-step start $steps --steps 6 -o one6 >out 2>err || exit 1
run 0 "six steps on three ranks" ranks 3 train-step start $steps --steps 6 -o three6
is "$(wc -l <out)" 1 "one result"
run 0 "the same again" ranks 3 train-step start $steps --steps 6 -o again6
is "$(digests three6)" "$(digests again6)" "has the same bits"
near one6 three6 "and the weights and moments of one rank"
run 0 "three steps on three ranks" ranks 3 train-step start $steps --steps 3 -o three3
run 0 "and three more" ranks 3 train-step three3 $steps --steps 3 -o three33
is "$(digests three33)" "$(digests three6)" "are six"
run 0 "three more on two ranks" ranks 2 train-step three3 $steps --steps 3 -o two33
near one6 two33 "are six to 1e-5"
run 0 "three more on one rank" cairn train-step three3 $steps --steps 3 -o one33
near one6 one33 "are six to 1e-5"
run 0 "every byte of it" cairn inspect --verify three33
run 0 "evaluation" cairn train-step start -c r.yaml --data train.jsonl --evaluate policy.sequence_packing.train_mb_tokens=40; cp out alone
run 0 "evaluation on three ranks" ranks 3 train-step start -c r.yaml --data train.jsonl --evaluate policy.sequence_packing.train_mb_tokens=40
close_to "$(number validation/val_loss)" "$(number validation/val_loss alone)"; ok $? "has the same loss"

# -- other layouts, and from one to another ----------------------------------------------------------
sed '/^grpo:/,/^sft:/{/^sft:/!d}' r.yaml >sft.yaml
steps="${steps#-c r.yaml} -c sft.yaml $key.optimizer.lr=1e-2 $key.scheduler.lr_warmup_iters=0"
cairn train-step start $steps $key.enabled=true --steps 6 -o one >out 2>err || exit 1
# on N WHERE [key=value ...]: steps 1 to 3 on one rank, then 4 to 6 there.
cairn train-step start $steps $key.enabled=true --steps 3 -o half >out 2>err || exit 1
on() {
	n=$1 where=$2; shift 2
	rm -rf there
	run 0 "three steps on one rank, three on $where" ranks "$n" train-step half $steps --steps 3 -o there "$@"
	near one there "are six to 1e-5"
	run 0 "every byte" cairn inspect --verify there
}
on 2 "TP 2" $tp=2
on 2 "PP 2" $pp=2
on 2 "CP 2" $cp=2
on 8 "TP 2, PP 2, DP 2" $tp=2 $pp=2 $sp
run 0 "three of six in one layout" ranks 4 train-step start $steps --steps 3 -o a3 $tp=2 $pp=2
run 0 "six there" ranks 4 train-step start $steps --steps 6 -o a6 $tp=2 $pp=2
run 0 "the last three" ranks 4 train-step a3 $steps --steps 3 -o a33 $tp=2 $pp=2
is "$(digests a33)" "$(digests a6)" "the same bits"
run 0 "resharded in between, and back" cairn reshard a3 -o r3 --tp 1 --pp 2 --stages 2,0 --dp 5
run 0 "the last three" ranks 4 train-step r3 $steps --steps 3 -o r33 $tp=2 $pp=2
is "$(digests r33)" "$(digests a6)" "the same bits"
run 0 "in between on other ranks" ranks 3 train-step a3 $steps --steps 3 -o b33 $cp=3
near one b33 "are six to 1e-5"
}

# -- loading: what lies in another form, and state that is not taken along -----------------------------------
# shellcheck disable=SC2086
{
still="$steps --steps 1 $key.optimizer.lr=0 $key.optimizer.min_lr=0 $key.optimizer.weight_decay=0 $key.scheduler.lr_warmup_init=0"
run 0 "the weights alone" cairn reshard a3 -o w3 --weights-only --tp 4
for from in a3 w3; do
	rm -rf l1
	run 0 "a step of no length from $from" ranks 4 train-step $from $still -o l1 $tp=2 $pp=2
	is "$(digests l1 | head -n 1)" "$(digests a3 | head -n 1)" "leaves the weights as they are, in every bit"
done
cairn train-step start $steps policy.precision=bfloat16 $key.enabled=true --steps 2 -o h2 cairn.checkpoint_dtype=bfloat16 >out 2>err || exit 1
for how in "3 $key.enabled=true" "4 $tp=2 $pp=2"; do
	rm -rf l1
	run 0 "bfloat16 with masters, on ${how%% *} ranks" ranks ${how%% *} train-step h2 $still -o l1 policy.precision=bfloat16 ${how#?}
	is "$(digests l1 | head -n 1)" "$(digests h2 | head -n 1)" "a step of no length leaves the weights as they are"
	rm -rf l1
	run 0 "the same in float32" ranks ${how%% *} train-step h2 $still -o l1 cairn.other_arithmetic=true ${how#?}
	rm -rf l2
	run 0 "and in bfloat16 again" ranks ${how%% *} train-step l1 $still -o l2 policy.precision=bfloat16 cairn.other_arithmetic=true \
		cairn.checkpoint_dtype=bfloat16 ${how#?}
	is "$(digests l2 | head -n 1)" "$(digests h2 | head -n 1)" "leaves the weights as they were"
done
}

# -- rollout and score ---------------------------------------------------------------------------------
lines() { cairn inspect "$1" --jsonl; }
run 0 "samples of one rank" cairn rollout start -c r.yaml -o s1
run 0 "scored" cairn score s1 -c r.yaml --policy start --reference start -o c1
lines s1 >s1.lines; lines c1 >c1.lines
# shellcheck disable=SC2086
for where in "2" "3" "7" "2 $tp=2" "4 $tp=2" "4 $tp=2 $pp=2"; do
	rm -rf s2 c2
	n=${where%% *} how=${where#"$n"}
	run 0 "samples on $n ranks,$how" ranks "$n" rollout start -c r.yaml -o s2 $how
	lines s2 | cmp -s - s1.lines && cmp -s s1/metrics.json s2/metrics.json; ok $? "are the same"
	run 0 "scored there" ranks "$n" score s2 -c r.yaml --policy start --reference start -o c2 $how
	lines c2 | cmp -s - c1.lines && cmp -s c1/metrics.json c2/metrics.json; ok $? "are the same"
done
run 0 "a step from them" ranks 2 train-step start c2 -c r.yaml -o next
is "$(number train/logprob_bits_different)" 0 "no bit of a log-probability differs"
run 64 "prompts from standard input" ranks 2 rollout start --prompts - --text
has err "standard input" "says so"

# -- experts -----------------------------------------------------------------------------------------
ep="$key.enabled=true $key.expert_model_parallel_size" etp=$key.expert_tensor_parallel_size
cat >moe.json <<-END
	{"model_type": "qwen3_moe", "vocab_size": 259, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
	 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
	 "rope_theta": 10000.0, "tie_word_embeddings": true, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
	 "norm_topk_prob": true}
END
cairn import-weights --init moe.json --tokenizer bytes --chat-template plain --seed 1 -o routed >out
sed '/^sft:/d' r.yaml >grpo.yaml
step="-c grpo.yaml policy.precision=float32 policy.sequence_packing.train_mb_tokens=24 $key.enabled=true $key.freeze_moe_router=false
	$key.optimizer.lr=1e-2 $key.scheduler.lr_warmup_iters=0"
# shellcheck disable=SC2086
{
cairn rollout routed $step -o e1 >out && cairn score e1 $step --policy routed --reference routed -o f1 >out || exit 1
run 0 "samples with experts on six ranks" ranks 6 rollout routed $step -o e2 $ep=2 $tp=2
lines e1 >e1.lines; lines e2 | cmp -s - e1.lines; ok $? "are the same"
run 0 "scored on four" ranks 4 score e2 $step --policy routed --reference routed -o f2 $ep=2
lines f1 >f1.lines; lines f2 | cmp -s - f1.lines; ok $? "are the same"
run 0 "a step on one rank" cairn train-step routed f1 $step -o g1
run 0 "on four, with more ranks than bins" ranks 4 train-step routed f1 $step -o g4 $ep=2 policy.sequence_packing.train_mb_tokens=64
near g1 g4 "is the same to 1e-5"
run 0 "on eight" ranks 8 train-step routed f1 $step -o g8 $ep=2 $tp=2 $pp=2 $etp=2
is "$(number train/logprob_bits_different)" 0 "no bit of a log-probability differs"
near g1 g8 "is the same to 1e-5"
run 0 "every byte of it" cairn inspect --verify g8
}

# -- deaths: nothing under the final name, and the next run goes through ---------------------------------
# dies RANK AT: that rank kills itself at its write, fsync or rename of that number.
dies() {
	# shellcheck disable=SC2016
	ranks 3 sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = '"$1"' ]; then CAIRN_TEST_KILL='"$2"' exec train-step start c1 -c r.yaml -o x; fi
		exec train-step start c1 -c r.yaml -o x' >out 2>err; rc=$?
	[ $rc -ne 0 ] && [ ! -e x ]; ok $? "rank $1 is killed at its write $2: status $rc, nothing is there"
}
for rank in 0 2; do for at in 1 5 9; do dies $rank $at; done; done
run 0 "the next run goes through" ranks 3 train-step start c1 -c r.yaml -o x
run 64 "an option that nobody knows" ranks 3 train-step start c1 -c r.yaml -o y --frob
is "$(grep -c . err)" 1 "is told once"
run 73 "an output that is there" ranks 3 train-step start c1 -c r.yaml -o x
is "$(grep -c . err)" 1 "is told once"
run 65 "a damaged input" ranks 3 train-step start train.jsonl -c r.yaml -o y
is "$(grep -c . err)" 1 "is told once"
tap_done
