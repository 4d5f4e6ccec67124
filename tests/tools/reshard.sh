#!/bin/sh
# reshard: a trained checkpoint through layouts and back, what it says before, what it refuses, what a kill or a full disk leaves.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
digests() { cairn inspect "$1" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }
field() { cairn inspect "$1" --json | grep -o "\"$2\": [^,}]*" | head -n 1; }
# The shards are named by what is in them.
shards() { ( cd "$1" && sha256sum ./*-????.h5 ); }
gone() { [ ! -e x ] && [ ! -e x.tmp ] && [ ! -e x.tmp.lock ]; ok $? "$1"; }
sums() { find "$1" -type f -exec sha256sum {} + | sort; }

# -- a checkpoint with everything: masters, moments, counters, cursor, recipe, metrics, tokenizer -----------
tiny_model start; tiny_data; tiny_recipe >r.yaml
sed 's/"prompt"/"input"/; s/"answer"/"output"/' train.jsonl >sft.jsonl
cairn train-step start --data train.jsonl --steps 2 -c r.yaml -o trained >out 2>err ||
	cairn train-step start --data sft.jsonl --steps 2 -c r.yaml -o trained >out || exit 1
sums trained >before

run 0 "one rank -> tp 2, stages 2,0, dp 3" cairn reshard trained -o a --tp 2 --stages 2,0 --dp 3
has out '"checkpoint": "a".*"tp": 2, "pp": 2.*"dp": 3.*"stage_of_layer": \[0, 0\]' "prints the layout"
is "$(wc -c <err)" 0 "and no more"
run 0 "-> tp 4, pp 2, cp 2, dp 5" cairn reshard a -o b --tp 4 --pp 2 --cp 2 --dp 5
run 0 "-> dp 7, compressed" cairn reshard b -o c --dp 7 --compress zstd:1
run 0 "-> one rank" cairn reshard c -o d
run 0 "one rank -> one rank" cairn reshard trained -o e
for x in a b c d e; do
	is "$(digests $x)" "$(digests trained)" "$x: both digests are the same"
	run 0 "$x: every byte is right" cairn inspect $x --verify
	for key in step updates schedule_step skipped consumed_samples tokens position optimizer precision fingerprint tokenizer; do
		[ "$(field $x $key)" = "$(field trained $key)" ] || echo "# $x: $key: $(field $x $key), not $(field trained $key)"
	done >differ
	is "$(cat differ)" "" "$x: counters, cursor and what trained it"
	diff -r trained/hf $x/hf >differ && cmp trained/tokenizer.h5 $x/tokenizer.h5 && cmp trained/recipe.yaml $x/recipe.yaml &&
		cmp trained/metrics.json $x/metrics.json
	ok $? "$x: side files, tokenizer, recipe, metrics"
done
is "$(shards d)" "$(shards e)" "there and back: the same bytes"
run 0 "no tensor differs" cairn inspect --diff trained b
cairn inspect --history d >out
has out 'made by +reshard .*c -o d' "the history names the run"
has out 'made by +reshard .*trained -o a' "and its parents"
has d/manifest.json '"reshard": 4' "and counts them"
cairn inspect trained --tensor model.layers.1.mlp.down_proj.weight --slot exp_avg --json >want
cairn inspect b --tensor model.layers.1.mlp.down_proj.weight --slot exp_avg --json >have
is "$(grep -o '"first.*' have)" "$(grep -o '"first.*' want)" "a moment, as it was"
if command -v h5dump >/dev/null 2>&1; then
	for x in trained b; do h5dump -d /optimizer/exp_avg_sq/model.embed_tokens.weight $x/index.h5 | sed 1d; done >dump
	half=$(($(wc -l <dump) / 2))
	is "$(head -n $half dump | cksum)" "$(tail -n $half dump | cksum)" "h5dump shows a tensor of 20 files whole"
else
	skip "h5dump shows a tensor whole" "h5dump is not here"
fi
cairn export trained -o want.hf >out && cairn export b -o have.hf >out
diff -r want.hf have.hf >differ; ok $? "exports are the same files"
run 0 "the next step goes on from it" cairn train-step b --data train.jsonl --steps 1 -c r.yaml -o next
cairn train-step trained --data train.jsonl --steps 1 -c r.yaml -o next0 >out
is "$(digests next)" "$(digests next0)" "to the same bits"

# -- options ---------------------------------------------------------------------------------------------------
run 0 "--weights-only" cairn reshard b -o w --tp 2 --weights-only
is "$(digests w)" "$(digests trained | head -n 1)" "the weights, and no optimizer state"
is "$(field w step) $(field w consumed_samples) $(field w cursor) $(field w optimizer)" \
	'"step": 0 "consumed_samples": 0 "cursor": null "optimizer": null' "nor counters and cursor"
has w/manifest.json '"train-step": 1' "but the history"
[ ! -e w/metrics.json ]; ok $? "no metrics"
run 0 "--like" cairn reshard trained -o l --like b
is "$(shards l)" "$(shards b)" "gives the very files"
run 0 "--dry-run" cairn reshard trained --dry-run --tp 2 --dp 3
has out '"files": 12, .*"bytes_read": .*"runs": .*"memory": ' "prints the plan"
has err '^read .* runs$' "and a table"
[ ! -e x ]; ok $? "and writes nothing"
run 0 "import-weights in a layout" cairn import-weights --init model.json --tokenizer bytes --chat-template plain --seed 1 -o i --tp 2 --pp 2
is "$(digests i)" "$(digests start)" "the same weights"
cairn reshard start -o j --tp 2 --pp 2 >out
is "$(shards i)" "$(shards j)" "in the same files as resharded"

# -- what is refused -------------------------------------------------------------------------------------------
run 64 "no -o" cairn reshard trained --tp 2
run 64 "no checkpoint" cairn reshard -o x
for n in 0 -1 2x 99999999999999999999 '' 3000000; do run 64 "--tp '$n'" cairn reshard trained -o x --tp "$n"; done
run 64 "TP that the heads do not allow" cairn reshard trained -o x --tp 3
has err 'tp 3 does not divide the model.s attention heads, 4: use a divisor such as 2' "says what to change"
is "$(wc -l <err)" 1 "in one line"
run 64 "more stages than layers" cairn reshard trained -o x --pp 3
has err 'at most 2' "says how many"
run 64 "stages of another sum" cairn reshard trained -o x --stages 2,1
has err '3 layers, but the model has 2' "says both"
run 64 "experts where there are none" cairn reshard trained -o x --ep 2 --dp 2
run 64 "--like and a size" cairn reshard trained -o x --like b --tp 2
run 64 "too little memory" cairn reshard trained -o x --memory 8MiB
run 64 "compression of no kind" cairn reshard trained -o x --compress lz4
sed 's/"intermediate_size": 32/"intermediate_size": 3/' model.json >odd.json
cairn import-weights --init odd.json --tokenizer bytes --chat-template plain -o odd >out
run 64 "an MLP of 3 on 2 ranks" cairn reshard odd -o x --tp 2
run 65 "--like another model" cairn reshard trained -o x --like odd
has err 'another model' "says so"
run 66 "no such checkpoint" cairn reshard nowhere -o x
run 66 "no such checkpoint to be like" cairn reshard trained -o x --like nowhere
mkdir there
run 73 "an output that is there" cairn reshard trained -o there
run 73 "no place for it" cairn reshard trained -o nowhere/x
gone "none of these left anything"

# -- a vocabulary of 10, cut in two; experts -----------------------------------------------------------------
sed 's/"vocab_size": 259/"vocab_size": 10/' model.json >ten.json
cairn import-weights --init ten.json --tokenizer none -o ten >out 2>err && cairn reshard ten -o ten2 --tp 2 >out && cairn export ten -o ten.hf >out &&
	cairn export ten2 -o ten2.hf >out && diff -r ten.hf ten2.hf >differ
ok $? "ten rows stay ten rows"
cat >moe.json <<END
{"model_type": "qwen3_moe", "vocab_size": 20, "hidden_size": 16, "intermediate_size": 24, "moe_intermediate_size": 8, "num_experts": 4,
 "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
 "max_position_embeddings": 64, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": true}
END
if cairn import-weights --init moe.json --tokenizer none -o moe >out 2>err; then
	run 0 "experts over 2 ranks" cairn reshard moe -o moe2 --ep 2
	has out '"ep": 2.*"dp": 2' "which needs 2 of them"
	run 0 "over 4, each cut in 2" cairn reshard moe2 -o moe4 --ep 4 --etp 2
	run 0 "and back" cairn reshard moe4 -o moe1
	is "$(shards moe1)" "$(shards moe)" "the same bytes"
	run 64 "over 3" cairn reshard moe -o x --ep 3
	has err 'ep 3 does not divide the model.s experts, 4' "is refused"
else
	skip "experts" "$(cat err)"
fi

# -- damaged inputs --------------------------------------------------------------------------------------------
damage() { rm -rf bad; cp -r b bad; }
refused() { # refused WHAT PATTERN [OPTION...]
	what=$1 pattern=$2; shift 2
	run 65 "$what" cairn reshard bad -o x "$@"
	has err "$pattern" "is named"
	is "$(wc -l <err)" 1 "in one line"
	gone "and nothing is left"
}
shard=$(basename b/optim-*-0003.h5) weights=$(basename b/weights-*-0000.h5)
damage; rm bad/"$shard"; refused "a missing shard" "$shard"
damage; rm bad/"$shard"
run 0 "of state that is not wanted" cairn reshard bad -o bad2 --weights-only
damage; cp a/"$(basename a/weights-*-0000.h5)" bad/"$weights"; refused "a shard of another checkpoint" "$weights"
damage; truncate -s -1 bad/"$shard"; refused "a shard that is cut short" "$shard"
damage
size=$(stat -c %s bad/"$weights")
printf '\377' | dd of=bad/"$weights" bs=1 seek=$((size - 100)) conv=notrunc 2>/dev/null
cmp -s b/"$weights" bad/"$weights" && printf '\0' | dd of=bad/"$weights" bs=1 seek=$((size - 100)) conv=notrunc 2>/dev/null
refused "a shard with another byte" "$weights"
damage; sed -i 's/"version": 1/"version": 9/; s/"reader": 1/"reader": 9/' bad/manifest.json; refused "a manifest of another version" "manifest.json"

# -- kills and full disks --------------------------------------------------------------------------------------
CAIRN_TEST_COUNT=points cairn reshard b -o k --tp 2 --dp 3 --pp 2 >out
points=$(cat points) bad=0
for part in 1 2 3 4 5 6 7 8; do
	at=$((points * part / 8))
	( CAIRN_TEST_KILL=$at exec cairn reshard b -o x --tp 2 --dp 3 --pp 2 ) >/dev/null 2>&1
	[ $part -eq 8 ] || [ ! -e x ] || bad=1
	[ -e x ] || cairn reshard b -o x --tp 2 --dp 3 --pp 2 >out 2>err || bad=1
	[ "$(shards x)" = "$(shards k)" ] && cmp -s x/index.h5 k/index.h5 || bad=1
	rm -rf x
done
ok $bad "killed at 8 of $points points, and run again: the same bytes"
bytes=$(du -sb k | cut -f 1) bad=0 failed=0
for blocks in 1 8 24 60 100; do
	( trap '' XFSZ; ulimit -f $blocks; exec cairn reshard b -o x --tp 2 --dp 3 --pp 2 ) >out 2>err
	got=$?
	[ $got -eq 74 ] && [ "$(wc -l <err)" -eq 1 ] && [ ! -e x ] && [ ! -e x.tmp ] && failed=$((failed + 1)) && continue
	[ $got -eq 0 ] && [ "$(digests x)" = "$(digests b)" ] && rm -r x && continue
	bad=1; echo "# $blocks blocks: $got: $(cat err)"; rm -rf x x.tmp
done
ok $bad "a write that fails: 74 in one line, and nothing stays"
[ $failed -gt 1 ]; ok $? "$failed did"
on_disk() { # on_disk OPTIONS COMMAND...: with a new file system at disk/, which others do not see
	mount=$1; shift
	unshare -m sh -c 'mount -t tmpfs -o "$1" none disk || exit 99; shift; "$@"; got=$?; ls disk >left; exit $got' sh "$mount" "$@"
}
mkdir disk
if unshare -m mount -t tmpfs -o size=64k none disk 2>/dev/null; then
	bad=0 failed=0
	for percent in 10 40 70 90 160; do
		on_disk "size=$((bytes * percent / 100 / 1024))k" cairn reshard b -o disk/x --tp 2 --dp 3 --pp 2 >out 2>err
		got=$?
		[ $got -eq 74 ] && failed=$((failed + 1)) && [ "$(wc -l <err)" -eq 1 ] && [ -z "$(cat left)" ] && continue
		[ $got -eq 0 ] && [ "$(cat left)" = x ] && continue
		bad=1; echo "# $percent %: $got: $(cat err) $(cat left)"
	done
	ok $bad "a disk that is full: 74 in one line, and nothing stays"
	[ $failed -ge 3 ]; ok $? "$failed were too small"
else
	skip "full disks" "no file system may be mounted here"
fi
sums trained | diff - before >differ; ok $? "the source is as it was"

# -- several ranks -----------------------------------------------------------------------------------------------
need_ranks "ranks that share the files"
for n in 2 3; do
	run 0 "$n ranks" ranks $n cairn reshard trained -o r$n --tp 4 --pp 2 --cp 2 --dp 5
	is "$(shards r$n)" "$(shards b)" "write the same files"
	is "$(wc -l <out)" 1 "and one line"
done
run 64 "$n ranks and a layout that cannot be" ranks 2 cairn reshard trained -o x --tp 3
damage; rm bad/"$shard"
run 65 "2 ranks and a missing shard" ranks 2 cairn reshard bad -o x
[ ! -e x ]; ok $? "leave nothing under the name"
tap_done
