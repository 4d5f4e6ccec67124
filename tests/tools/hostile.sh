#!/bin/sh
# What is damaged, cut short, of another kind or plainly wrong: the right status, one line, nothing left behind.
#
# HOSTILE_MUTANTS=2000: so many bit flips, in a checkpoint and in samples each; HOSTILE_SEED=N: others.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
mutants=${HOSTILE_MUTANTS:-60} seed=${HOSTILE_SEED:-1}

tiny_model start; tiny_data; tiny_recipe >r.yaml
cairn rollout start -c r.yaml -o samples >out && cairn score samples -c r.yaml --policy start --reference start -o scored >out &&
	cairn train-step start scored -c r.yaml -o trained >out || exit 1
cairn inspect scored --jsonl >scored.jsonl

# refused STATUS COMMAND...: that status, one line that is not long, no x and no x.tmp
refused() {
	want=$1; shift
	"$@" >out 2>err </dev/null; got=$?
	[ $got -eq "$want" ] && [ "$(wc -l <err)" -eq 1 ] && [ "$(wc -c <err)" -lt 1200 ] && [ ! -e x ] && [ ! -e x.tmp ] && [ ! -s out ] && return 0
	echo "# $*: exit $got, want $want: $(head -c 600 err)"
	rm -rf x x.tmp
	return 1
}
refuses() { # refuses WHAT STATUS COMMAND...
	what=$1; shift
	refused "$@"
	ok $? "$what: $(sed 's/^[a-z-]*: //' err | cut -c 1-100)"
}

# -- single bits -------------------------------------------------------------------------------------------
flip() { # flip FILE BYTE BIT
	old=$(od -An -tu1 -j "$2" -N 1 "$1")
	# shellcheck disable=SC2059
	printf "\\$(printf %03o $((old ^ (1 << $3))))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
for set in trained scored; do
	cp -r $set copy
	find copy -type f | sort | xargs stat -c '%s %n' >files
	# So that every file has its turn, however small.
	awk -v n="$mutants" -v seed="$seed" '{ size[NR] = $1; name[NR] = $2 } END { srand(seed)
		for (i = 0; i < n; i++) { f = i % NR + 1; print name[f], int(rand() * size[f]), int(rand() * 8) } }' files >flips
	bad=0
	while read -r file byte bit; do
		flip "$file" "$byte" "$bit"
		refused 65 cairn inspect copy --verify || { bad=1; echo "# $file byte $byte bit $bit"; }
		flip "$file" "$byte" "$bit"
	done <flips
	ok $bad "$mutants flipped bits of $set, in $(wc -l <files) files: 65"
	run 0 "and without them" cairn inspect copy --verify
	rm -r copy
done

# -- files that are cut, gone, or something else ----------------------------------------------------------
for set in trained scored; do
	if [ $set = trained ]; then reader="cairn train-step copy --data train.jsonl -o x -c r.yaml"; else reader="cairn train-step start copy -o x -c r.yaml"; fi
	bad=0 n=0
	for file in $(cd $set && find . -type f | sort); do
		for how in half empty longer gone folder loop; do
			# Beside the tensors: a program reads the side files that it needs, --verify all of them.
			cp -r $set copy
			case $how in
			half) truncate -s "$(($(stat -c %s "copy/$file") / 2))" "copy/$file" ;;
			empty) : >"copy/$file" ;;
			longer) printf x >>"copy/$file" ;;
			gone) rm "copy/$file" ;;
			folder) rm "copy/$file" && mkdir "copy/$file" ;;
			loop) ln -sf "$(basename "$file")" "copy/$file" ;;
			esac
			status=65
			case $file.$how in ./manifest.json.gone|./manifest.json.loop) status=66 ;; esac
			refused 65 cairn inspect copy --verify || { bad=1; echo "# $set/$file: $how"; }
			n=$((n + 1))
			case $file in
			*.h5|./manifest.json) refused $status $reader || { bad=1; echo "# $set/$file: $how"; } ;;
			esac
			rm -rf copy
		done
	done
	ok $bad "$n files of $set cut, gone, or something else"
done

# -- other kinds --------------------------------------------------------------------------------------------
refuses "a file for a checkpoint" 65 cairn rollout train.jsonl -o x -c r.yaml
refuses "samples for a checkpoint" 65 cairn rollout samples -o x -c r.yaml
refuses "samples to export" 65 cairn export samples -o x
refuses "a file to export" 65 cairn export train.jsonl -o x
refuses "a checkpoint for samples" 65 cairn score start -o x -c r.yaml
refuses "prompts for samples" 65 cairn score train.jsonl -o x -c r.yaml
refuses "samples for a policy" 65 cairn score samples -o x -c r.yaml --policy samples --reference start
refuses "a folder for prompts" 65 cairn rollout start -o x -c r.yaml --prompts start
refuses "an empty file of prompts" 65 cairn rollout start -o x -c r.yaml --prompts /dev/null
refuses "a checkpoint for a recipe" 65 cairn inspect start/index.h5
mkdir nothing
refuses "a folder of nothing" 65 cairn inspect nothing
refuses "a name too long" 66 cairn rollout "$(printf '%0300d' 0)" -o x -c r.yaml

# -- JSON lines -----------------------------------------------------------------------------------------------
lines() { # the file WHAT of one bad line each, after a good one
	cat <<'END'
{"prompt": "1+1="
{"prompt": "1+1=", "prompt": "2+2=", "answer": "2"}
{"prompt": "1+1=", "answer": "2"} x
[1, 2]
"1+1="
{"prompt": 7, "answer": "2"}
{"prompt": null, "answer": "2"}
{"answer": "2"}
{"prompt": "a\ud800", "answer": "2"}
{"prompt": "a	b", "answer": "2"}
{"prompt": "1+1=", "answer": NaN}
{"prompt": "1+1=", "answer": 01}
{'prompt': '1+1='}
END
	printf '{"prompt": "\377", "answer": "2"}\n'
	awk 'BEGIN { for (i = 0; i < 100000; i++) printf "["; print "" }'
}
bad=0 n=0
lines >bad.lines
while IFS= read -r line; do
	{ head -n 1 train.jsonl; printf '%s\n' "$line"; } >bad.jsonl
	n=$((n + 1))
	refused 65 cairn rollout start -o x -c r.yaml --prompts bad.jsonl && grep -q 'bad.jsonl:2' err || { bad=1; echo "# rollout: $(cat err)"; }
	refused 65 cairn train-step start -o x -c r.yaml --data bad.jsonl && grep -q 'bad.jsonl:2' err || { bad=1; echo "# train-step: $(cat err)"; }
	{ head -n 1 scored.jsonl; printf '%s\n' "$line"; } >bad.jsonl
	refused 65 cairn train-step start bad.jsonl -o x -c r.yaml && grep -q 'bad.jsonl:2' err || { bad=1; echo "# samples: $(cat err)"; }
done <bad.lines
ok $bad "$n bad lines of prompts, conversations and samples, each named by its line"

# Fields of samples that are no samples.
bad=0 n=0
while IFS= read -r edit; do
	{ head -n 1 scored.jsonl; sed -n 2p scored.jsonl | sed -E "$edit"; } >bad.jsonl
	n=$((n + 1))
	cmp -s bad.jsonl scored.jsonl && { bad=1; echo "# no edit: $edit"; }
	refused 65 cairn train-step start bad.jsonl -o x -c r.yaml || { bad=1; echo "# $edit"; }
done <<'END'
s/"token_ids": \[[^]]*\]/"token_ids": []/
s/"token_ids": \[[^]]*\]/"token_ids": [1, -5, 7]/
s/"token_ids": \[[0-9]+/"token_ids": [99999999999/
s/"token_ids": \[[0-9]+/"token_ids": [1.5/
s/"token_ids": \[[^]]*\]/"token_ids": "abc"/
s/"prompt_length": [0-9]+/"prompt_length": 0/
s/"prompt_length": [0-9]+/"prompt_length": 1000/
s/"prompt_length": [0-9]+/"prompt_length": -1/
s/"logprobs": \[[^]]*\]/"logprobs": [0.5]/
s/"advantages": \[[^]]*\]/"advantages": [1e400]/
s/"advantages": \[[^]]*\]/"advantages": [0.0]/
s/"loss_mask": \[[^]]*\]/"loss_mask": [2]/
s/"update": [0-9]+/"update": -3/
s/"update": [0-9]+/"update": 9223372036854775807/
s/"update": [0-9]+/"update": 4611686018427387904/
s/"sample_index": [0-9]+/"sample_index": -1/
s/"step": [0-9]+/"step": 99999999999999999999/
s/"finish_reason": "[a-z_]*"/"finish_reason": "bored"/
s/"policy": "[0-9a-f]*"/"policy": "xyz"/
END
ok $bad "$n samples with fields that cannot be"

# -- recipes ----------------------------------------------------------------------------------------------------
bad=0 n=0
while IFS='|' read -r status text; do
	printf '%b\n' "$text" >bad.yaml
	n=$((n + 1))
	refused "$status" cairn train-step start scored -o x -c bad.yaml && grep -q 'bad.yaml' err || { bad=1; echo "# $text: $(cat err)"; }
done <<'END'
78|grpo: {num_prompts_per_stepp: 4}
78|grpo: {num_prompts_per_step: -4}
78|grpo: {num_prompts_per_step: many}
78|grpo: {num_prompts_per_step: 1.5}
65|grpo: {num_prompts_per_step: 99999999999999999999}
78|policy: {optimizer: {kwargs: {lr: fast}}}
65|policy: {optimizer: {kwargs: {lr: .nan}}}
78|policy: {train_global_batch_size: 0}
78|policy: 7
65|- a list
78|grpo: {num_prompts_per_step: "${a.b}"}
65|grpo: {num_prompts_per_step: ${a.b}}
65|a: &a [*a]
65|grpo: [
65|\tgrpo: 1
66|defaults: nowhere.yaml
78|defaults: bad.yaml
65|grpo: {seed: 1}\ngrpo: {seed: 2}
65|policy: {model_name: "\0377"}
END
ok $bad "$n bad recipes: no YAML 65, no file 66, else 78; each names the file"
tap_done
