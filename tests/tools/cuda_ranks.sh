#!/bin/sh
# train-step and score as several ranks, each with an emulated GPU: one rank's numbers, the same bits twice.
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
need_ranks "programs over ranks with emulated devices"
if [ ! -e "$BUILD/emu-plain/cairn-cuda.so" ]; then
	skip "programs over ranks with emulated devices" "NVIDIA's headers are not here; see docs/cuda.md"
	tap_done
fi
export CAIRN_CUDA_SO="$BUILD/emu-plain/cairn-cuda.so" EMU_DEVICES=4 CAIRN_COMM_TIMEOUT=60
number() { sed -n "s|.*\"$1\": \([-+0-9.einf]*\).*|\1|p" "${2:-out}" | tail -n 1; }
close_to() {
	awk -v x="$1" -v y="$2" 'BEGIN {
		d = x - y; exit !(x ~ /[0-9]/ && (d < 0 ? -d : d) <= 1e-5 * (y < 0 ? -y : y))
	}'
	ok $? "$3 ($1)"
}
digests() { cairn inspect "$1" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }
# near A B WHAT: no tensor of the two differs by more than 1e-5 of its norm.
near() {
	cairn inspect --diff "$1" "$2" --json >differ 2>err
	awk -F'"relative": ' '
		{ for (i = 2; i <= NF; i++) { n++; if ($i + 0 > 1e-5) bad = 1 } }
		END { exit !(n && !bad) }' differ
	ok $? "$3"
}

tiny_model start; tiny_data
tiny_recipe | sed '/^grpo:/,/^sft:/{/^sft:/!d}' >sft.yaml
tiny_recipe | sed '/^sft:/d' >grpo.yaml
key=policy.megatron_cfg
# A step of Adam divides gradients of nearly nothing by themselves: at a rate of 1e-2 the embedding of TP 4
# is 1.4e-5 from that of one rank, on the CPU as here, where moments are within 5e-6.
steps="-c sft.yaml --device cuda --data train.jsonl --steps 2 policy.precision=float32 $key.enabled=true
	policy.train_global_batch_size=4 policy.sequence_packing.train_mb_tokens=24
	$key.optimizer.lr=1e-3 $key.scheduler.lr_warmup_iters=0"
# shellcheck disable=SC2086
{
cairn train-step start $steps -o one >out 2>err; rc=$?
if grep -q 'is not built for cuda yet' err; then
	skip "programs over ranks with emulated devices" "$(sed 's/.*: //' err | head -n 1)"
	tap_done
fi
ok $rc "two steps on one device"
cp out one.out
# on N WHERE [key=value ...]
on() {
	n=$1 where=$2; shift 2
	rm -rf there
	run 0 "two steps on $n devices: $where" ranks "$n" train-step start $steps -o there "$@"
	close_to "$(number train/loss)" "$(number train/loss one.out)" "the loss of one"
	close_to "$(number train/grad_norm)" "$(number train/grad_norm one.out)" "the norm of its gradient"
	near one there "its weights and moments to 1e-5"
}
tp=$key.tensor_model_parallel_size pp=$key.pipeline_model_parallel_size
on 2 "TP 2" $tp=2
mv there tp2
run 0 "the same again" ranks 2 train-step start $steps -o again $tp=2
is "$(digests again)" "$(digests tp2)" "has the same bits"
on 4 "TP 4" $tp=4
on 2 "DP 2"
on 3 "DP 3"
on 4 "TP 2, DP 2" $tp=2
on 2 "PP 2" $pp=2
on 2 "CP 2" $key.context_parallel_size=2
}

lines() { cairn inspect "$1" --jsonl; }
run 0 "samples" cairn rollout start -c grpo.yaml -o s1 --device cpu
run 0 "scored on one device" cairn score s1 -c grpo.yaml --policy start --reference start -o c1 --device cuda
run 0 "on two, TP 2" ranks 2 score s1 -c grpo.yaml --policy start --reference start -o c2 --device cuda $key.enabled=true $tp=2
lines c1 >c1.lines; lines c2 >c2.lines
cmp -s c1.lines c2.lines; ok $? "has the same bits of log-probabilities"
EMU_DEVICES=1 run 69 "two ranks, one device" ranks 2 train-step start -c sft.yaml --device cuda --data train.jsonl -o no
has err 'no CUDA device 1: there are 1' "says so"
tap_done
