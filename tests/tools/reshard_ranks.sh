#!/bin/sh
# Checkpoints that several ranks write or read: disks that fill on one of them, ranks that die in the middle of a commit, shards that
# are missing, foreign, cut short, changed or of a newer version, compression. Nothing is left under the name, one line says why.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
digests() { cairn inspect "$1" --json | grep -o '"[a-z]*_digest": "[0-9a-f]*"'; }
shards() { for f in "$1"/weights-*.h5 "$1"/optim-*.h5; do cksum <"$f"; done; }
# sealed DIR: its manifest, which was edited, gets the checksum of what it says now.
sealed() {
	sum=$(cairn inspect "$1" --json 2>&1 | sed -n 's/.*altered (wanted \([0-9a-f]*\)).*/\1/p')
	sed -i 's/"checksum": "[0-9a-f]*"/"checksum": "'"$sum"'"/' "$1/manifest.json"
}
tiny_model start; tiny_data
tiny_recipe | sed '/^grpo:/,/^sft:/{/^sft:/!d}' >r.yaml
cairn train-step start --data train.jsonl --steps 1 -c r.yaml -o trained >out 2>err || exit 1
to="--tp 2 --pp 2 --dp 3"

# -- experts that were exchanged ---------------------------------------------------------------------------------
cat >moe.json <<END
{"model_type": "qwen3_moe", "vocab_size": 20, "hidden_size": 16, "intermediate_size": 24, "moe_intermediate_size": 8, "num_experts": 4,
 "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
 "max_position_embeddings": 64, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": true}
END
cairn import-weights --init moe.json --tokenizer none -o moe >out && cairn export moe -o moe.hf >out || exit 1
LC_ALL=C sed -i 's/experts\.0\./experts.X./g; s/experts\.1\./experts.0./g; s/experts\.X\./experts.1./g' moe.hf/model.safetensors
run 0 "two experts in each other's place, all checksums made anew" cairn import-weights moe.hf --tokenizer none -o swapped
run 1 "it is sound, and another model" cairn inspect --diff moe swapped
has out 'mlp\.experts\.gate_proj\.weight' "the tensors of the experts differ"
# The same with the digests that the manifest had.
cp -r swapped forged
grep -o '"sum": "[0-9a-f]*"' moe/manifest.json >sums
awk 'NR == FNR { sum[NR] = $0; next } { line = $0; done = ""
	while (match(line, /"sum": "[0-9a-f]*"/)) { done = done substr(line, 1, RSTART - 1) sum[++n]; line = substr(line, RSTART + RLENGTH) }
	print done line }' sums swapped/manifest.json >forged/manifest.json
sed -i "s/$(digests swapped | head -n 1)/$(digests moe | head -n 1)/" forged/manifest.json
sealed forged
is "$(digests forged)" "$(digests moe)" "with the digests of before"
run 65 "is found by --verify" cairn inspect --verify forged
has err 'experts.*its digest is not the one in the manifest' "which names the experts"
run 65 "and by reshard" cairn reshard forged -o x --ep 2
has err 'experts.*its digest is not the one in the manifest' "which names them too"
[ ! -e x ] && [ ! -e x.tmp ]; ok $? "and leaves nothing"

need_ranks "several ranks that write a checkpoint"
# only RANK NAME=VALUE COMMAND...: on 3 ranks, with that in the environment of one
only() {
	# shellcheck disable=SC2016
	ranks 3 sh -c 'rank=$1 set=$2; shift 2
		[ "$OMPI_COMM_WORLD_RANK" != "$rank" ] || export "$set"; exec "$@"' sh "$@" >out 2>err
	got=$?
}
nothing() { [ ! -e x ] && [ ! -e x.tmp ]; }

# -- disks ---------------------------------------------------------------------------------------------------
# shellcheck disable=SC2086
for rank in 0 1 2; do
	for at in 1 9; do
		only $rank CAIRN_TEST_FULL=$at cairn reshard trained -o x $to
		[ $got -eq 74 ] && [ "$(grep -c . err)" -eq 1 ] && grep -q 'No space left' err && nothing
		ok $? "reshard: the disk of rank $rank is full at its write $at: 74 in one line, nothing stays ($got: $(cat err))"
		rm -rf x x.tmp
	done
	only $rank CAIRN_TEST_FULL=3 cairn train-step trained --data train.jsonl --steps 1 -c r.yaml -o x
	[ $got -eq 74 ] && [ "$(grep -c . err)" -eq 1 ] && grep -q 'No space left' err && nothing
	ok $? "train-step: the disk of rank $rank is full: 74 in one line, nothing stays ($got: $(cat err))"
	rm -rf x x.tmp
done

# -- deaths ----------------------------------------------------------------------------------------------------
# shellcheck disable=SC2086
{
run 0 "three ranks" ranks 3 cairn reshard trained -o whole $to
for rank in 0 1 2; do
	only $rank CAIRN_TEST_COUNT=points cairn reshard trained -o x $to
	n=$(cat points); rm -rf x
	for at in $((n - 1)) $n; do
		only $rank CAIRN_TEST_KILL="$at" cairn reshard trained -o x $to
		# The last of rank 0 comes after the rename.
		[ $got -ne 0 ] && { [ ! -e x ] || { [ $rank -eq 0 ] && cairn inspect --verify x >out; }; }
		ok $? "rank $rank is killed at $at of its $n writes, syncs and renames: status $got, nothing half-written"
		[ -e x ] || ranks 3 cairn reshard trained -o x $to >out 2>err
		is "$(shards x)" "$(shards whole)" "and run again: the same files"
		rm -rf x
	done
done

# -- compression ---------------------------------------------------------------------------------------------
for n in 2 3; do
	run 0 "$n ranks that compress" ranks $n cairn reshard trained -o z$n $to --compress zstd
	run 0 "every byte" cairn inspect z$n --verify
	is "$(digests z$n)" "$(digests trained)" "the same digests"
	run 0 "and back" ranks $n cairn reshard z$n -o back$n
	is "$(digests back$n)" "$(digests trained)" "with the same digests"
done
is "$(shards z2)" "$(shards z3)" "2 and 3 ranks: the same files"
cairn reshard trained -o z1 $to --compress zstd >out
is "$(shards z3)" "$(shards z1)" "as one"
cairn reshard trained -o back1 >out
is "$(shards back3)" "$(shards back1)" "and back too"
cairn train-step trained --data train.jsonl --steps 1 -c r.yaml -o next1 >out 2>err
run 0 "a step of three ranks from compressed files" ranks 3 train-step z3 --data train.jsonl --steps 1 -c r.yaml -o next3
run 0 "a step of three ranks from plain ones" ranks 3 train-step trained --data train.jsonl --steps 1 -c r.yaml -o plain3
is "$(digests next3)" "$(digests plain3)" "has the same bits"
}

# -- shards that are not what they should be, read by several ranks ------------------------------------------------
shard=$(basename whole/optim-*-0007.h5) weights=$(basename whole/weights-*-0000.h5)
# refused WHAT STATUS PATTERN
refused() {
	for how in "cairn reshard bad -o x" "train-step bad --data train.jsonl --steps 1 -c r.yaml -o x"; do
		# shellcheck disable=SC2086
		ranks 2 $how >out 2>err
		got=$?
		[ $got -eq "$2" ] && [ "$(grep -c . err)" -eq 1 ] && grep -qE "$3" err && nothing
		ok $? "$1: ${how%% bad*} on 2 ranks says it in one line, $2 ($got: $(cat err))"
	done
}
damage() { rm -rf bad; cp -r whole bad; }
damage; rm bad/"$shard"; refused "a missing shard" 65 "$shard"
damage; cp trained/"$(basename trained/weights-*-0000.h5)" bad/"$weights"; refused "a foreign shard" 65 "$weights"
damage; truncate -s -1 bad/"$shard"; refused "a shard that is cut short" 65 "$shard"
damage
size=$(stat -c %s bad/"$weights")
printf '\377' | dd of=bad/"$weights" bs=1 seek=$((size - 100)) conv=notrunc 2>/dev/null
cmp -s whole/"$weights" bad/"$weights" && printf '\0' | dd of=bad/"$weights" bs=1 seek=$((size - 100)) conv=notrunc 2>/dev/null
refused "a shard with another byte" 65 "$weights"
damage; sed -i 's/"version": 1/"version": 9/; s/"reader": 1/"reader": 9/' bad/manifest.json; sealed bad
refused "a checkpoint of a newer version" 69 "version 9.*newer cairn"
tap_done
