#!/bin/sh
# A GRPO run of a tiny model in float32 on the device against the CPU's: rewards and losses of each step, and the weights at the end.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
tiny_model start; tiny_data
steps=3
for d in cpu cuda; do
	prev=start; : >$d.curve
	tiny_recipe | sed 's/precision: bfloat16/precision: float32/; s/lr: 1.0e-2/lr: 1.0e-3/' >r.yaml
	for n in $(seq $steps); do
		run 0 "$d, step $n: rollout" cairn rollout "$prev" -c r.yaml --device $d -o $d.drawn.$n ${cursor:+--after $cursor}
		cursor=$d.drawn.$n
		run 0 "$d, step $n: score" cairn score $d.drawn.$n -c r.yaml --device $d --policy "$prev" --reference start -o $d.scored.$n
		sed -n 's/.*"train\/reward": \([-0-9.e+]*\).*/reward \1/p' out >>$d.curve
		run 0 "$d, step $n: train-step" cairn train-step "$prev" $d.scored.$n -c r.yaml --device $d -o $d.step.$n
		sed -n 's/.*"train\/loss": \([-0-9.e+]*\).*/loss \1/p' out >>$d.curve
		is "$(sed -n 's/.*"train\/logprob_bits_different": \([0-9]*\).*/\1/p' out)" 0 "$d, step $n: recorded log-probabilities, to the bit"
		prev=$d.step.$n
	done
	cursor=
done
paste -d' ' cpu.curve cuda.curve | awk '{ d = $2 - $4; if (d < 0) d = -d; print "# " $0; n++; bad += $1 != $3 || d > 1e-4 } END { exit !(n >= 3 && !bad) }'
ok $? "the curve of the device is the CPU's"
cairn inspect --diff cpu.step.$steps cuda.step.$steps --json | grep '"slot": "weight"' | sed -n 's/.*"relative": \([-0-9.e+naif]*\).*/\1/p' | sort -g | tail -n 1 >worst
awk '{ exit !($1 + 0 <= 1e-4) }' worst; ok $? "weights after $steps steps, of their norm: $(cat worst)"
tap_done
