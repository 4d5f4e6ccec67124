#!/bin/sh
# score on samples made by hand: rewards, baselines, weights, what is refused, external verifiers.
. "$CAIRN_ROOT/tests/lib/tap.sh"

# sample PROMPT INDEX TEXT ANSWER [TOKENS]: a line of two prompt tokens and two (or more) sampled ones
sample() {
	n=${5:-2} ids='5, 6' lp='-0.5' mask='1'
	i=0; while [ $i -lt "$n" ]; do ids="$ids, $((7 + i))"; i=$((i + 1)); done
	i=1; while [ $i -lt "$n" ]; do lp="$lp, -0.25" mask="$mask, 1"; i=$((i + 1)); done
	printf '{"prompt_id": %d, "sample_index": %d, "step": 1, "split": "train", "prompt_length": 2, "token_ids": [%s], "logprobs": [%s], "loss_mask": [%s], "policy": "%032d", "fingerprint": "%s", "temperature": 1.0, "text": "%s", "row": {"answer": "%s"}}\n' \
		"$1" "$2" "$ids" "$lp" "$mask" 1 "${PRINT:-0000000000000001}" "$3" "$4"
}
base='loss_fn.reference_policy_kl_penalty=0'
mean='grpo.normalize_rewards=false grpo.use_leave_one_out_baseline=false'
# The fingerprint of this machine, as score writes it.
sample 0 0 4 4 >one.jsonl
cairn score one.jsonl -o probe --reward exact --policy nowhere $base >/dev/null 2>&1
PRINT=$(cairn import-weights --init "$CAIRN_ROOT/pipelines/recipes/demo-model.json" --tokenizer bytes --chat-template plain --seed 1 -o ck >/dev/null 2>&1 &&
	echo '{"prompt": "1+1="}' | cairn rollout ck --prompts - --jsonl policy.generation.max_new_tokens=1 2>/dev/null | sed -n 's/.*"fingerprint": "\([0-9a-f]*\)".*/\1/p')
ok "$([ ${#PRINT} -eq 16 ]; echo $?)" "the fingerprint of this arithmetic is known"

values() { cairn inspect "$1" --jsonl | sed -n "s/.*\"$2\": \[\([^]]*\)\].*/\1/p" | tr '\n' ';'; }
scalar() { cairn inspect "$1" --jsonl | sed -n "s/.*\"$2\": \([^,}]*\).*/\1/p" | tr '\n' ';'; }

# Groups are by prompt, whatever the order of the rows.
{ sample 0 0 4 4; sample 1 0 4 4; sample 0 1 3 4; sample 1 1 4 4; } >groups.jsonl
# shellcheck disable=SC2086
run 0 "scores two groups" cairn score groups.jsonl -o groups --reward exact $base $mean
is "$(scalar groups reward)" "1.0;0.0;1.0;1.0;" "exact: right answers get 1"
is "$(values groups advantages)" "0.5, 0.5;-0.5, -0.5;0.0, 0.0;0.0, 0.0;" "advantages against the mean of the own prompt"
is "$(values groups loss_weights.policy | head -c 11)" "0.125, 0.12" "token level: one over the 8 tokens of the update"
has out '"train/reward": 0.75' "mean reward in the line on stdout"
has out '"timing/load": [0-9.e-]+, "timing/save": [0-9.e-]+[,}]' "and the seconds of loading and saving"
! grep -q timing groups/metrics.json groups/manifest.json; ok $? "which are in no file"
run 0 "verifies" cairn inspect groups --verify

# Lengths: the weights of an update add up to 1, whatever it is cut into.
{ sample 0 0 4 4 2; sample 0 1 3 4 2; sample 0 2 3 4 4; } >lengths.jsonl
# shellcheck disable=SC2086
cairn score lengths.jsonl -o lengths --reward exact $base $mean >/dev/null
is "$(values lengths loss_weights.policy | tr ';,' '\n\n' | awk '{ s += $1 } END { printf "%.6f", s }')" "1.000000" "weights add up to 1"
# shellcheck disable=SC2086
cairn score lengths.jsonl -o updates --reward exact $base $mean policy.train_global_batch_size=2 >/dev/null
is "$(scalar updates update)" "0;0;1;" "updates of two samples"
is "$(values updates loss_weights.policy | tr ';,' '\n\n' | awk '{ s += $1 } END { printf "%.6f", s }')" "2.000000" "each update's weights add up to 1"
# shellcheck disable=SC2086
cairn score lengths.jsonl -o sequence --reward exact $base $mean loss_fn.token_level_loss=false >/dev/null
is "$(values sequence loss_weights.policy | cut -d';' -f3 | cut -d, -f1 | cut -c1-9)" "0.0833333" "sequence level: 1 / (4 tokens x 3 sequences)"

# A verifier that fails on one sample: not 0, out of its group's mean, no weight.
{ sample 0 0 4 4; sample 0 1 broken 4; sample 0 2 3 4; sample 0 3 4 4; } >crash.jsonl
cat >judge.sh <<'S'
while read -r line; do
	case $line in *broken*) exit 3 ;; esac
	id=$(printf '%s' "$line" | sed 's/.*"sample_index": \([0-9]*\).*/\1/')
	case $line in *'"text": "4"'*) r=1 ;; *) r=0 ;; esac
	echo "{\"prompt_id\": 0, \"sample_index\": $id, \"reward\": $r}"
done
S
# shellcheck disable=SC2086
run 0 "a crash costs one sample" cairn score crash.jsonl -o crash --exec "sh judge.sh" $base $mean cairn.max_unscored=0.5
has err "1 of 4 samples are unscored" "and is said"
is "$(values crash advantages | tr -d ' ' | sed 's/0.33333334/third/g; s/-0.6666667/-twothird/g')" "third,third;0.0,0.0;-twothird,-twothird;third,third;" \
	"mean over the three that were scored"
is "$(values crash loss_weights.policy | cut -d';' -f2)" "0.0, 0.0" "the unscored one has no weight"
# shellcheck disable=SC2086
run 65 "too many unscored samples end it" cairn score crash.jsonl -o never --exec "sh judge.sh" $base $mean
ok "$([ ! -e never ]; echo $?)" "and leave no output"
# shellcheck disable=SC2086
run 0 "several verifiers side by side give the same" cairn score crash.jsonl -o crash4 --exec "sh judge.sh" $base $mean cairn.max_unscored=0.5 env.math.exec_workers=4
run 0 "the same samples" cairn inspect --diff crash crash4
# shellcheck disable=SC2086
sed 's/{/{"order": 9223372036854775807, /' one.jsonl >order.jsonl
run 65 "an order that cannot be counted on" cairn score order.jsonl -o never --reward exact $base
has err 'order.jsonl.*order: found 9223372036854775807' "is named"
for t in 1e-46 -1 1e300; do
	sed "s/\"temperature\": 1.0/\"temperature\": $t/" one.jsonl >hot.jsonl
	run 65 "a temperature of $t" cairn score hot.jsonl -o never --reward exact $base
	has err 'temperature: found' "is named"
done
echo '{"prompt": "1+1="}' >prompt.jsonl
run 78 "rollout: too cold a temperature" cairn rollout ck --prompts prompt.jsonl --text policy.generation.temperature=1e-46
has err 'temperature: found 1e-46' "is named"
cat >huge.sh <<'END'
sed -u 's/.*"prompt_id": \([0-9]*\).*"sample_index": \([0-9]*\),.*/{"prompt_id": \1, "sample_index": \2, "reward": -1e300}/'
END
run 65 "a reward whose square is not finite" cairn score crash.jsonl -o huge --exec "sh huge.sh" $base $mean
has err 'sample .prompt [0-9]+, [0-9]+.: found reward -1e\+300, wanted one of at most 1e\+30' "would be an advantage of 0"
run 66 "a verifier that is not there" cairn score one.jsonl -o nobody --exec "./nowhere" $base
has err '--exec ./nowhere: the shell cannot run it .status 127.' "is no sample's fault"
ok "$([ ! -e nobody ] && [ ! -e nobody.journal ]; echo $?)" "without an answer there is no journal"
run 65 "a verifier that hangs runs out of time" cairn score one.jsonl -o never --exec "sleep 60" $base env.math.exec_timeout=0.3
has err "time is up" "and the message says so"

# The journal: what was answered is not asked again, and another's journal is not believed.
sed "s/\"fingerprint\": \"[0-9a-f]*\"/\"fingerprint\": \"$PRINT\"/" groups.jsonl >two.jsonl
cat >slow.sh <<'S'
n=$(cat asked 2>/dev/null || echo 0)
while read -r line; do
	n=$((n + 1)); echo $n >asked
	[ $n -ne 3 ] || kill -9 $PPID
	p=$(printf '%s' "$line" | sed 's/.*"prompt_id": \([0-9]*\).*/\1/') i=$(printf '%s' "$line" | sed 's/.*"sample_index": \([0-9]*\).*/\1/')
	echo "{\"prompt_id\": $p, \"sample_index\": $i, \"reward\": 0.75}"
done
S
# shellcheck disable=SC2086
run 137 "killed at the third answer" cairn score two.jsonl -o kept --exec "exec sh slow.sh" $base
ok "$([ ! -e kept ] && [ -e kept.journal ]; echo $?)" "no output, but a journal"
# shellcheck disable=SC2086
run 0 "run again" cairn score two.jsonl -o kept --exec "exec sh slow.sh" $base
is "$(cat asked)" "5" "asks only for the two that were left"
is "$(scalar kept reward)" "0.75;0.75;0.75;0.75;" "and has all four"
ok "$([ ! -e kept.journal ]; echo $?)" "the journal goes when the samples are there"
printf '{"journal": "0"}\n{"prompt_id": 0, "sample_index": 0, "reward": 9}\n' >fresh.journal
# shellcheck disable=SC2086
run 0 "a journal of something else" cairn score two.jsonl -o fresh --exec "exec sh slow.sh" $base
has err "of other samples" "is said to be"
is "$(scalar fresh reward)" "0.75;0.75;0.75;0.75;" "and not believed"

# A pattern.
cat >regex.yaml <<'S'
env: {math: {reward_functions: [{name: regex, weight: 1.0, pattern: "(-?[0-9]+)"}, {name: format, weight: 0.5, pattern: "so"}]}}
loss_fn: {reference_policy_kl_penalty: 0.0}
S
{ sample 0 0 '2 and 2, so 4' 4; sample 0 1 '4 or 5' 4; } >regex.jsonl
run 0 "patterns" cairn score regex.jsonl -o regex -c regex.yaml
is "$(scalar regex reward)" "1.5;0.0;" "the last match counts; weighted sum"

# What is refused.
sed 's/"logprobs": \[-0.5, -0.25\]/"logprobs": [-0.5]/' groups.jsonl >short.jsonl
run 65 "ids and log-probabilities of different length" cairn score short.jsonl -o never --reward exact $base
has err "short.jsonl:1" "with the line"
run 64 "no output given" cairn score groups.jsonl --reward exact
run 73 "the output exists" cairn score groups.jsonl -o groups --reward exact $base
run 78 "an unknown reward" cairn score groups.jsonl -o never --reward exactt $base
has err "exact" "with the nearest name"
run 66 "no such samples" cairn score nowhere -o never --reward exact $base
run 69 "a teacher is not built" cairn score groups.jsonl -o never --teacher ck
PRINT=00000000000000ff
sample 0 0 4 4 >other.jsonl
run 64 "log-probabilities of another arithmetic want --policy" cairn score other.jsonl -o never --reward exact $base
has err "policy CKPT" "and it is said how"
run 0 "with it they are computed" cairn score other.jsonl -o computed --reward exact --policy ck $base
run 64 "a KL weight wants a reference" cairn score two.jsonl -o never --reward exact
run 0 "with one" cairn score other.jsonl -o reference --reward exact --policy ck --reference ck
is "$(values reference prev_logprobs)" "$(values reference reference_logprobs)" "the same weights: the same numbers"

# Shuffled rewards are a control: the same rewards, elsewhere.
# shellcheck disable=SC2086
run 0 "shuffles" cairn score groups.jsonl -o shuffled --reward exact --shuffle-rewards 3 $base $mean
is "$(scalar shuffled reward | tr ';' '\n' | sort | tr '\n' ';')" "0.0;1.0;1.0;1.0;" "the same rewards"
cairn score groups.jsonl -o shuffled2 --reward exact --shuffle-rewards 3 $base $mean --threads 1 >/dev/null
run 0 "the same way, whatever the threads" cairn inspect --diff shuffled shuffled2
has shuffled/manifest.json '"shuffle_rewards": 3' "and the manifest says so"
has shuffled/manifest.json '"what": "samples"' "which also names what was read"

# Several inputs, one behind the other; what was scored before is scored anew.
{ sample 2 0 4 4; sample 2 1 3 4; } >more.jsonl
# shellcheck disable=SC2086
run 0 "two inputs" cairn score groups more.jsonl -o both --reward exact --reward length=0.5 $base $mean --policy ck policy.train_global_batch_size=4
is "$(scalar both prompt_id)" "0;0;1;1;2;2;" "in the order they were given"
is "$(scalar both update)" "0;0;0;0;1;1;" "cut into updates in that order"
# shellcheck disable=SC2086
run 65 "the same sample twice" cairn score groups.jsonl groups.jsonl -o never --reward exact $base --policy ck
sed 's/"step": 1/"step": 2/' more.jsonl >later.jsonl
# shellcheck disable=SC2086
run 65 "two steps" cairn score groups.jsonl later.jsonl -o never --reward exact $base --policy ck
has err "steps 1 and 2" "and it says which"

# What rollout recorded is what score computes, and a wrong bit is found.
echo '{"prompt": "1+1=", "answer": "2"}' >train.jsonl
run 0 "rolls out" cairn rollout ck -o rolled data.train.data_path=train.jsonl grpo.num_prompts_per_step=1 grpo.num_generations_per_prompt=4 policy.generation.max_new_tokens=8 policy.max_total_sequence_length=64
run 0 "recorded values stand" cairn score rolled -o recorded --reward exact $base --policy ck cairn.recompute_share=1
cairn inspect rolled --jsonl | sed 's/"fingerprint": "[0-9a-f]*"/"fingerprint": "00000000000000ff"/' >foreign.jsonl
run 0 "of another arithmetic: computed" cairn score foreign.jsonl -o anew --reward exact $base --policy ck
is "$(values anew prev_logprobs)" "$(values recorded prev_logprobs)" "the same bits"
cairn inspect rolled --jsonl | sed 's/"logprobs": \[-[0-9.e-]*/"logprobs": [-1.5/' >forged.jsonl
run 70 "a recorded value that is not this policy's" cairn score forged.jsonl -o never --reward exact $base --policy ck cairn.recompute_share=1
has err "prompt 0, 0" "and the sample is named"
cairn inspect rolled --jsonl | sed 's/"logprobs": \[[^]]*\], //' >without.jsonl
run 65 "importance weights want what the sampler recorded" cairn score without.jsonl -o never --reward exact $base --policy ck loss_fn.use_importance_sampling_correction=true

# Validation: no weights, only how good the answers are.
sed 's/"train"/"validation"/' groups.jsonl >val.jsonl
run 0 "validation" cairn score val.jsonl -o val --reward exact
has out '"validation/accuracy": 0.75' "its accuracy"
has out '"validation/avg_length": 2.0' "its length"
has out '"validation/pass@samples_per_prompt": 1.0' "both prompts are solved by one sample"

# Verifiers that read slowly, end between two samples, or report an error.
awk 'BEGIN { while (i++ < 20000) printf "0123456789"; }' >long.txt
sample 0 0 "$(cat long.txt)" 4 >long.jsonl
# shellcheck disable=SC2086
run 65 "one that never reads a long sample" cairn score long.jsonl -o never --exec "sleep 60" $base env.math.exec_timeout=0.3 --policy ck
has err "time is up" "runs out of time"
cat >once.sh <<'S'
read -r line
i=$(printf '%s' "$line" | sed 's/.*"sample_index": \([0-9]*\).*/\1/') p=$(printf '%s' "$line" | sed 's/.*"prompt_id": \([0-9]*\).*/\1/')
echo "{\"sample_index\": $i, \"prompt_id\": $p, \"rewards\": {\"a\": 0.5, \"b\": 0.25}, \"extracted\": \"x\"}"
S
# shellcheck disable=SC2086
run 0 "one that ends after each answer" cairn score two.jsonl -o once --exec "sh once.sh" $base $mean
is "$(scalar once reward)" "0.75;0.75;0.75;0.75;" "costs no sample; rewards add up"
cat >error.sh <<'S'
while read -r line; do
	i=$(printf '%s' "$line" | sed 's/.*"sample_index": \([0-9]*\).*/\1/')
	case $i in
	1) echo "{\"prompt_id\": 0, \"sample_index\": 1, \"error\": \"no compiler\"}" ;;
	*) echo "{\"prompt_id\": 0, \"sample_index\": $i, \"reward\": 1}" ;;
	esac
done
S
sed "s/\"fingerprint\": \"[0-9a-f]*\"/\"fingerprint\": \"$PRINT\"/" crash.jsonl >four.jsonl
# shellcheck disable=SC2086
run 0 "one that reports an error" cairn score four.jsonl -o error --exec "sh error.sh" $base $mean --policy ck cairn.max_unscored=0.25
has err "no compiler" "its words are said"
is "$(scalar error reward_valid)" "true;false;true;true;" "and that sample is unscored, not 0"
has out '"train/unscored": 1.0' "and counted"
has out '"train/reward": 1.0' "the mean is over the others"
for n in 1 4; do
	# shellcheck disable=SC2086
	cairn score groups.jsonl -o threads$n --reward exact --reward length=0.5 $base $mean --threads $n >/dev/null
done
run 0 "one thread or four: the same" cairn inspect --diff threads1 threads4
tap_done
