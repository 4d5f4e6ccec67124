#!/bin/sh
# train-step: what it refuses and how; updates that are skipped; masters, decay, schedule and order over a resume; full disks.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
digests() { cairn inspect "$1" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }
weights() { digests "$1" | head -n 1; }
metric() { sed -n "s|.*\"$1\": \([-0-9.e+]*\).*|\1|p" "${2:-out}"; }
tensor() { cairn inspect "$1" --tensor "$2" --slot "${3:-weight}" --json; }
first() { tensor "$@" | sed 's/.*"first": \[\([^]]*\)\].*/\1/'; }
gone() { [ ! -e x ] && [ ! -e x.tmp ] && [ ! -e x.tmp.lock ]; ok $? "$1"; }

tiny_model start; tiny_data; tiny_recipe >r.yaml
cairn rollout start -c r.yaml -o samples >out && cairn score samples -c r.yaml --policy start --reference start -o scored >out || exit 1
find start samples scored -type f -exec sha256sum {} + | sort >inputs

# -- megatron_cfg turned on for its layout alone brings an optimizer along --------------------------------
run 0 "an optimizer that does not hold" cairn train-step start scored --algorithm grpo -c r.yaml -o quiet_lr policy.megatron_cfg.enabled=true
has err 'r\.yaml:[0-9]+: policy\.optimizer has no effect where policy\.megatron_cfg\.enabled' "is told of"
run 0 "the other optimizer" cairn train-step start scored --algorithm grpo -c r.yaml -o loud_lr policy.megatron_cfg.enabled=true policy.megatron_cfg.optimizer.lr=1e-3
[ ! -s err ]; ok $? "that was meant is not"

# -- what is refused -----------------------------------------------------------------------------------
run 64 "no operand" cairn train-step
run 64 "no -o" cairn train-step start scored
run 64 "neither samples nor data" cairn train-step start -o x
run 64 "both" cairn train-step start scored --data train.jsonl -o x
run 64 "no step" cairn train-step start --data train.jsonl --steps 0 -o x
run 64 "an algorithm that nobody knows" cairn train-step start scored -o x --algorithm ppo
run 64 "sft from samples" cairn train-step start scored -o x --algorithm sft
run 64 "an option that nobody knows" cairn train-step start scored -o x --frob
for a in dpo rm distillation; do run 69 "$a" cairn train-step start --data train.jsonl -o x --algorithm $a; done
has err 'not built' "is not built, and says so"
run 66 "no checkpoint" cairn train-step nowhere scored -o x -c r.yaml
run 66 "no samples" cairn train-step start nowhere -o x -c r.yaml
has err 'nowhere' "are named"
run 66 "no data" cairn train-step start --data nowhere.jsonl -o x
run 66 "no recipe" cairn train-step start scored -o x -c nowhere.yaml
run 65 "samples that are not scored" cairn train-step start samples -o x -c r.yaml
has err 'not scored' "says so"
run 65 "a checkpoint for samples" cairn train-step start start -o x -c r.yaml
has err 'start' "is named"
run 65 "samples for a checkpoint" cairn train-step scored scored -o x -c r.yaml
run 65 "a file for a checkpoint" cairn train-step train.jsonl scored -o x -c r.yaml
mkdir empty
run 66 "an empty folder for a checkpoint" cairn train-step empty scored -o x -c r.yaml
run 65 "a checkpoint for data" cairn train-step start --data start -o x -c r.yaml
run 73 "an output that is there" cairn train-step start scored -o empty -c r.yaml
has err 'empty.*exists' "is never written over"
run 73 "no place for the output" cairn train-step start scored -o nowhere/x -c r.yaml
run 78 "a number of 67 bits" cairn train-step start scored -o x -c r.yaml grpo.seed=99999999999999999999
has err 'command line: found 99999999999999999999, wanted' "is found on the command line, of no number of line"
run 78 "a key that nobody knows" cairn train-step start scored -o x -c r.yaml loss_fn.ratio_clip_mim=0.1
run 78 "a recipe that scored otherwise" cairn train-step start scored -o x -c r.yaml policy.train_global_batch_size=4
has err 'train_global_batch_size.*8.*4|train_global_batch_size.*4.*8' "with both values"
run 78 "two losses" cairn train-step start scored -o x -c r.yaml loss_fn.use_cispo=true loss_fn.force_on_policy_ratio=true
run 78 "a precision that is none" cairn train-step start scored -o x -c r.yaml policy.precision=float16

cairn import-weights --init model.json --tokenizer bytes --chat-template plain --seed 2 -o other >out
run 65 "samples of another policy" cairn train-step other scored -o x -c r.yaml
has err "policy $(weights start | grep -o '[0-9a-f]\{32\}').*$(weights other | grep -o '[0-9a-f]\{32\}')" "names both"
cairn rollout start -c r.yaml -o samples5 --step 5 >out && cairn score samples5 -c r.yaml --policy start --reference start -o scored5 >out
run 65 "samples for another step" cairn train-step start scored5 -o x -c r.yaml
has err 'step 5.*step 1' "names both"
cairn inspect scored --jsonl >scored.jsonl
sed '2s/"advantages": \[[^]]*\]/"advantages": [NaN]/' scored.jsonl >nan.jsonl
run 65 "a line of samples that is no JSON" cairn train-step start nan.jsonl -o x -c r.yaml
has err 'nan.jsonl:2' "is named"
sed '3s/, "advantages": \[[^]]*\]//' scored.jsonl >without.jsonl
run 65 "a sample without advantages" cairn train-step start without.jsonl -o x -c r.yaml
sed '3s/"token_ids": \[[0-9]*/"token_ids": [259/' scored.jsonl >id.jsonl
run 65 "a token that the model does not know" cairn train-step start id.jsonl -o x -c r.yaml
has err '259' "is named"
sed '1s/"update": 0/"update": 9223372036854775807/' scored.jsonl >far.jsonl
run 65 "an update far away" cairn train-step start far.jsonl -o x -c r.yaml
has err 'update 9223372036854775807' "is named"
sed '1s/"update": 0/"update": 3/' scored.jsonl >gap.jsonl
run 65 "updates with a gap" cairn train-step start gap.jsonl -o x -c r.yaml
has err 'update 3, but none has update 2' "both are named"
sed '2s|"loss_weights/policy": \[[0-9.e-]*|"loss_weights/policy": [1e999|' scored.jsonl >infinite.jsonl
run 65 "a weight that is not finite" cairn train-step start infinite.jsonl -o x -c r.yaml
has err 'loss weight of token 0' "is named"
sed '3s/, "logprobs": \[[^]]*\]//' scored.jsonl >unsaid.jsonl
run 65 "no log-probabilities of the sampler where the KL term wants them" cairn train-step start unsaid.jsonl -o x -c r.yaml \
	loss_fn.use_on_policy_kl_approximation=true
has err 'no logprobs' "says so"
gone "none of these left anything"
find start samples scored -type f -exec sha256sum {} + | sort | diff - inputs >difference; ok $? "or changed its inputs"

# -- one step --------------------------------------------------------------------------------------------
run 0 "a step" cairn train-step start scored -o one -c r.yaml
has out '"timing/load": [0-9.e-]+, "timing/save": [0-9.e-]+[,}]' "says the seconds of loading and saving"
! grep -q timing one/metrics.json one/manifest.json; ok $? "in no file"
is "$(metric train/logprob_bits_different) $(metric train/num_updates) $(metric step)" "0 2 1" "two updates, no bit of a log-probability differs"
is "$(grep -c '"digest": "00000000000000000000000000000000"' one/manifest.json)" 0 "every input has its digest"
run 0 "with two threads and one" cairn train-step start scored -o two --threads 1 -c r.yaml
is "$(digests two)" "$(digests one)" "the same bits"
run 0 "from JSON lines" cairn train-step start scored.jsonl -o three -c r.yaml
is "$(digests three)" "$(digests one)" "the same bits"
run 0 "a learning rate of 0" cairn train-step start scored -o zero -c r.yaml policy.optimizer.kwargs.lr=0.0
is "$(weights zero)" "$(weights start)" "leaves the weights as they are, in every bit"
[ "$(weights one)" != "$(weights start)" ]; ok $? "another does not"
run 0 "--dry-run" cairn train-step start scored -c r.yaml --dry-run
is "$(metric parameters)" 8832 "counts the parameters"

# Weight decay alone (B74): no reward, so no gradient.
set -- -c r.yaml loss_fn.reference_policy_kl_penalty=0.0 policy.optimizer.kwargs.lr=0.01 policy.optimizer.kwargs.weight_decay=0.1 \
	policy.train_global_batch_size=16
cairn score samples --policy start --reward exact=1 -o flat "$@" >out
run 0 "no gradient" cairn train-step start flat -o decayed "$@"
is "$(metric train/grad_norm)" 0.0 "is none"
is "$(first decayed model.norm.weight)" "1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0" "norms do not decay"
name=model.layers.1.mlp.up_proj.weight
printf '%s\n%s\n' "$(first start $name)" "$(first decayed $name)" | awk -F', ' '
	NR == 1 { for (i = 1; i <= NF; i++) w[i] = $i }
	NR == 2 { for (i = 1; i <= NF; i++) if ($i == w[i] || ($i / w[i] - 0.999) ^ 2 > 1e-12) bad = 1; exit bad || NF < 8 }'
ok $? "matrices do, by 0.999"

# Nothing to learn from (B61): no token has a weight; decay moves nothing.
awk '{ while (match($0, /"loss_weights\/policy": \[[0-9e][^]]*[1-9][^]]*\]/)) {
	v = substr($0, RSTART, RLENGTH); k = index(v, "["); w = substr(v, k); gsub(/[0-9.e-]+/, "0.0", w)
	$0 = substr($0, 1, RSTART - 1) substr(v, 1, k - 1) w substr($0, RSTART + RLENGTH) } print }' scored.jsonl >masked.jsonl
run 0 "no token with a weight" cairn train-step start masked.jsonl -o masked "$@" -v
is "$(weights masked)" "$(weights start)" "the weights are as they were"
has err 'update skipped: none of its tokens' "and the reason is said"
is "$(metric train/skipped_updates)" 2 "and both counted"

# A gradient that is not finite: the update is skipped and counted.
cairn export start -o hf >out
size=$(stat -c %s hf/model.safetensors)
printf '\000\000\300\177' | dd of=hf/model.safetensors bs=1 seek=$((size - 4)) conv=notrunc 2>dd.err
cairn import-weights hf -o nan >out
run 0 "a NaN among the weights" cairn train-step nan --data train.jsonl --steps 2 -o skipped -c r.yaml -v
is "$(metric train/skipped_updates)" 2 "two updates are skipped"
has err 'skipped.*gradient of' "a parameter is named at -v"
is "$(weights skipped)" "$(weights nan)" "the weights are as they were"
has skipped/manifest.json '"skipped": 2' "the checkpoint counts them"
has skipped/manifest.json '"updates": 0' "and no update"
has skipped/manifest.json '"step": 2' "but the steps"
is "$(tensor skipped $name exp_avg | grep -o '"max": [^,]*')" '"max": 0.0' "the moments are as they were"

# Line ends that the template puts behind the last answer are not learnt, the end token is.
cairn import-weights --init model.json --tokenizer bytes --chat-template chatml --seed 1 -o chatml >out
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' >talk.jsonl
run 0 "a conversation" cairn train-step chatml --data talk.jsonl --evaluate -c r.yaml policy.max_total_sequence_length=64
is "$(metric validation/num_tokens)" 12 "b, ten letters of <|im_end|>, and the end token count"
run 0 "without an end token" cairn train-step chatml --data talk.jsonl --evaluate -c r.yaml policy.max_total_sequence_length=64 data.add_eos=false
is "$(metric validation/num_tokens)" 11 "b and ten letters"

# -- a resume ----------------------------------------------------------------------------------------------
# Masters (B73): bfloat16 weights, steps too small for them.
cairn import-weights --init model.json --tokenizer bytes --chat-template plain --seed 1 --dtype bfloat16 -o low >out
set -- -c r.yaml policy.optimizer.kwargs.lr=1.0e-4 policy.optimizer.kwargs.weight_decay=0.0
run 0 "ten small steps" cairn train-step low --data train.jsonl --steps 10 -o ten "$@"
cairn train-step low --data train.jsonl --steps 5 -o five "$@" >out
run 0 "five and five" cairn train-step five --data train.jsonl --steps 5 -o fives "$@"
is "$(digests fives)" "$(digests ten)" "the same bits"
has out '"checkpoint": "fives"' "one line says where"
is "$(tensor ten model.norm.weight | grep -o '"dtype": "[a-z0-9]*"')" '"dtype": "bfloat16"' "weights are stored as bfloat16"
is "$(tensor ten model.norm.weight master | grep -o '"dtype": "[a-z0-9]*"')" '"dtype": "float32"' "masters as float32"
is "$(first ten model.norm.weight)" "1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0" "the weights show nothing"
first ten model.norm.weight master | awk -F', ' '{ for (i = 1; i <= NF; i++) { d = ($i - 1) ^ 2; if (d == 0 || d > 1.01e-6) bad = 1 } exit bad || NF < 8 }'
ok $? "the masters moved, by at most 10 x 1e-4"

# -- rows that are too long ---------------------------------------------------------------------------------
printf '%s\n' '{"prompt": "1+2=", "answer": "3"}' '{"prompt": "1+2+3+4+5+6+7+8+9+1+2+3+4+5+6+7=", "answer": "73"}' >long.jsonl
run 0 "a row that is too long" cairn train-step start --data long.jsonl --steps 2 -o short -c r.yaml policy.train_global_batch_size=2
has err 'long.jsonl: 2 of 4 rows are left out: more than 32 tokens$' "is left out, with a warning"
run 0 "of an evaluation too" cairn train-step short --data long.jsonl --evaluate -c r.yaml
has out '"validation/num_samples": 1}' "and is not counted"
run 65 "rows that are all too long" cairn train-step start --data long.jsonl -o x -c r.yaml policy.max_total_sequence_length=4
has err 'long.jsonl: all 2 rows have more than 4 tokens' "are an error"
run 65 "of an evaluation too" cairn train-step start --data long.jsonl --evaluate -c r.yaml policy.max_total_sequence_length=4
run 0 "an evaluation on other data than the cursor's" cairn train-step short --data train.jsonl --evaluate -c r.yaml
is "$(cat err)" "" "goes without a warning"
echo '{"messages": [{"role": "user", "content": "1"}], "answer": "1"}' >asked.jsonl
run 65 "a conversation without an answer" cairn train-step start --data asked.jsonl -o x -c r.yaml
has err 'asked.jsonl: row 0 .line 1.: no answer to learn' "is named"

# The schedule goes on (B76), and so does the order of the rows.
cat >schedule.yaml <<'END'
defaults: r.yaml
policy:
  optimizer: {kwargs: {lr: 1.0}}
  scheduler:
    - {name: torch.optim.lr_scheduler.LinearLR, kwargs: {start_factor: 0.25, end_factor: 1.0, total_iters: 3}}
    - {name: torch.optim.lr_scheduler.LinearLR, kwargs: {start_factor: 1.0, end_factor: 0.0, total_iters: 6}}
    - {milestones: [4]}
END
at=start seen=
for s in 1 2 3 4 5 6 7 8 9 10; do
	cairn train-step $at --data train.jsonl -o by$s -c schedule.yaml >out || break
	seen="$seen $(metric train/lr | awk '{ printf "%.5f", $1 }')" at=by$s
done
is "$seen" " 0.25000 0.50000 0.75000 1.00000 1.00000 0.83333 0.66667 0.50000 0.33333 0.16667" "a step a process: the rates"
run 0 "ten steps in one process" cairn train-step start --data train.jsonl --steps 10 -o at_once -c schedule.yaml
is "$(digests by10)" "$(digests at_once)" "give the same bits"
has by10/manifest.json '"position": 80' "at the same row"

# The order of prompts over epochs (B78): 10 prompts, 2 a step.
head -n 10 train.jsonl >ten.jsonl
set -- -c r.yaml data.train.data_path=ten.jsonl grpo.num_prompts_per_step=2 -n 1
cairn rollout start -o d1 "$@" >out
for s in 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do cairn rollout start --after d$((s - 1)) -o d$s "$@" >out || break; done
for s in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do cairn inspect d$s --jsonl; done | sed 's/^{"prompt_id": \([0-9]*\),.*/\1/' >order
for e in 1 2 3; do sed -n "$((e * 10 - 9)),$((e * 10))p" order >epoch$e; sort -n epoch$e | tr '\n' ' '; done >each
is "$(cat each)" "0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 " "each of three epochs has each prompt once"
! cmp -s epoch1 epoch2 && ! cmp -s epoch2 epoch3 && ! cmp -s epoch1 epoch3; ok $? "in orders of their own"

# -- a write that fails --------------------------------------------------------------------------------
set -- -c r.yaml
find start scored -type f -exec sha256sum {} + | sort >inputs
if [ -w /dev/full ]; then
	( cairn train-step start scored -o full "$@" >/dev/full ) 2>err
	is $? 74 "nobody can take the line of results"
	has err 'standard output' "says so"
	is "$(digests full)" "$(digests one)" "the checkpoint is there"
else
	skip "a full device" "no /dev/full"
fi
( cairn train-step start scored -o piped "$@" | : ) 2>err
is "$(digests piped)" "$(digests one)" "a pipe that nobody reads costs no checkpoint"
run 0 "no standard output at all" sh -c 'cairn train-step start scored -o closed -c r.yaml >&-'
is "$(digests closed)" "$(digests one)" "neither"

# Files may not grow over so many blocks of 512 bytes.
bytes=$(du -sb one | cut -f 1) bad=0
for blocks in 1 8 24 60 100 140; do
	( trap '' XFSZ; ulimit -f $blocks; exec cairn train-step start scored -o x "$@" ) >out 2>err
	got=$?
	[ $got -eq 74 ] && [ "$(wc -l <err)" -eq 1 ] && [ ! -e x ] && [ ! -e x.tmp ] && continue
	[ $got -eq 0 ] && [ "$(digests x)" = "$(digests one)" ] && rm -r x && continue
	bad=1; echo "# $blocks blocks: $got: $(cat err)"; rm -rf x x.tmp
done
ok $bad "a write that fails: 74 in one line, and nothing stays"

# A disk that is full, and one that cannot be written: a file system of our own, where we may have one.
on_disk() { # on_disk OPTIONS COMMAND...: with a new file system at disk/, which others do not see
	mount=$1; shift
	unshare -m sh -c 'mount -t tmpfs -o "$1" none disk || exit 99; shift; "$@"; got=$?; ls disk >left; exit $got' sh "$mount" "$@"
}
mkdir disk
if unshare -m mount -t tmpfs -o size=64k none disk 2>/dev/null; then
	bad=0 failed=0
	for percent in 5 20 40 60 75 85 92 97 103 130; do
		kib=$((bytes * percent / 100 / 1024))
		on_disk "size=${kib}k" cairn train-step start scored -o disk/x "$@" >out 2>err
		got=$?
		[ $got -eq 74 ] && failed=$((failed + 1)) && [ "$(wc -l <err)" -eq 1 ] && [ -z "$(cat left)" ] && continue
		[ $got -eq 0 ] && [ "$(cat left)" = x ] && continue
		bad=1; echo "# $kib KiB: $got: $(cat err) $(cat left)"
	done
	ok $bad "a disk that is full: 74 in one line, and nothing stays ($failed sizes)"
	[ $failed -gt 4 ]; ok $? "most of them were too small"
	run 73 "a disk that is read-only" on_disk ro cairn train-step start scored -o disk/x "$@"
	has err 'Read-only' "says so"
else
	skip "full and read-only disks" "no file system may be mounted here"
fi
find start scored -type f -exec sha256sum {} + | sort | diff - inputs >difference; ok $? "the old checkpoint is as it was"

# -- memory ------------------------------------------------------------------------------------------------
run 69 "--memory that is too little" cairn train-step start scored -o x "$@" --memory 300000
has err '^train-step: [0-9]+ tokens .* want [0-9]+ bytes .* gives 300000; .*train_m.*activation_checkpointing' "bytes, and what to change"
is "$(wc -l <err)" 1 "in one line"
run 69 "score, too" cairn score samples -o x "$@" --policy start --reference start --memory 20000
has err 'want [0-9]+ bytes.*logprob_' "bytes, and what to change"
run 69 "rollout, too" cairn rollout start -o x "$@" --memory 20000
has err 'want [0-9]+ bytes.*--memory' "bytes, and what to change"
run 0 "enough" cairn train-step start scored -o roomy "$@" --memory 2MB
is "$(digests roomy)" "$(digests one)" "changes no bit"
# Addresses of so many KiB; below, the libraries themselves find no room.
set -- 300000 60000 50000 45000 40000 35000
bad=0 refused=0
for kib; do
	# shellcheck disable=SC3045
	( ulimit -v "$kib"; exec cairn train-step start --data train.jsonl -o x -c r.yaml policy.train_global_batch_size=100000000 --threads 1 ) >out 2>err
	got=$?
	[ $got -eq 127 ] && continue
	[ $got -eq 69 ] && grep -q 'out of memory: [0-9]* bytes' err && [ "$(wc -l <err)" -eq 1 ] && refused=$((refused + 1)) && continue
	bad=1; echo "# $kib KiB: $got: $(cat err)"
done
[ $refused -gt 0 ] && [ $bad -eq 0 ]; ok $? "memory that the system refuses: 69 and the bytes"
gone "none of it left anything"
# -- another arithmetic -----------------------------------------------------------------------------------
cairn train-step start --data train.jsonl -c r.yaml -o here >out || exit 1
if [ "$(cairn train-step here --data train.jsonl -c r.yaml --isa portable -o x 2>&1 >out; echo $?)" = 0 ]; then
	skip "a run that changes its arithmetic" "this machine has only the portable one"
else
	rm -rf x
	run 75 "a run does not change its arithmetic by itself" cairn train-step here --data train.jsonl -c r.yaml --isa portable -o x
	has err "cairn.other_arithmetic" "and says how to make it"
	gone "nothing is left"
	run 0 "told to, it goes on" cairn train-step here --data train.jsonl -c r.yaml --isa portable -o there cairn.other_arithmetic=true
fi
tap_done
