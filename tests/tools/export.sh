#!/bin/sh
# export: shards and their index, file modes, what is refused, interrupted runs.  Weights and types are in test_import.c.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
data=$CAIRN_ROOT/tests/data
field() { sed -n "s/.*\"$1\": \"*\([^\",}]*\).*/\1/p" "${2:-out}"; }
gone() { [ ! -e "$1" ] && [ ! -e "$1.tmp" ]; ok $? "$2"; }
import-weights "$data/hf-tiny-qwen2" -o ckpt >imported || exit 1

# Shards (B03).
run 0 "in shards" cairn export ckpt -o three --max-shard-size 16KB
has out '"export": "three"' "one line tells of it"
is "$(wc -l <out)" 1 "only one"
is "$(field weights_digest)" "$(field weights_digest imported)" "with the checkpoint's digest"
is "$(field total_size three/model.safetensors.index.json)" "$(field bytes)" "total_size is exact"
sed -n 's/.*: "\(model-.*\)",*/\1/p' three/model.safetensors.index.json | sort -u >named
( cd three && ls -- *.safetensors ) >there
is "$(cat there)" "$(cat named)" "the index names every file"
[ "$(wc -l <named)" -gt 2 ]; ok $? "more than two"
run 73 "a folder that is there" cairn export ckpt -o three
has err 'three.*exists' "is never written over"
run 0 "in one file" cairn export ckpt -o one --max-shard-size 0
is "$(ls one/*.safetensors)" one/model.safetensors "of the usual name"
[ ! -e one/model.safetensors.index.json ]; ok $? "without an index"
run 0 "both are" import-weights three -o three.ckpt
is "$(import-weights one -o one.ckpt | field weights_digest -)" "$(field weights_digest)" "the same model"
is "$(field weights_digest)" "$(field weights_digest imported)" "and the one that went out"

# Modes (B04).
for mask in 022:644 027:640; do
	( umask ${mask%:*}; cairn export ckpt -o mode --max-shard-size 16KB >/dev/null )
	is "$(find mode -type f -exec stat -c %a {} + | sort -u)" ${mask#*:} "umask ${mask%:*}: every file is ${mask#*:}"
	rm -rf mode
done

# The command line.
run 64 "no -o" cairn export ckpt
run 64 "no checkpoint" cairn export -o x
run 64 "an unknown type" cairn export ckpt -o x --dtype int8
run 64 "an unknown format" cairn export ckpt -o x --format onnx
run 64 "a size that is none" cairn export ckpt -o x --max-shard-size many
run 69 "GGUF" cairn export ckpt -o x --format gguf
has err 'GGUF is not built' "is not built"
run 69 "also by its name" cairn export ckpt -o x.gguf
run 69 "an adapter" cairn export ckpt -o x --base ckpt
run 66 "no such checkpoint" cairn export nowhere -o x
run 66 "a folder that is no checkpoint" cairn export one -o x
run 73 "no place to write" cairn export ckpt -o nowhere/x
gone x "none of these left anything"

# A checkpoint that is not what its config says.
run 0 "a checkpoint" import-weights "$data/hf-tiny-llama" -o broken
sed -i 's/"hidden_size": 12/"hidden_size": 13/' broken/hf/config.json
run 65 "a changed side file" cairn export broken -o x
has err 'hf/config.json' "is named"
gone x "nothing is exported"

# Killed at 20 evenly spaced writes, fsyncs and renames (B79).
run 0 "counted" env CAIRN_TEST_COUNT=points cairn export ckpt -o count --max-shard-size 16KB
points=$(cat points) bad=0 n=0
[ "$points" -gt 20 ]; ok $? "there are $points moments to be killed at"
while [ $n -lt 20 ]; do
	at=$((1 + n * (points - 1) / 19)) n=$((n + 1))
	( CAIRN_TEST_KILL=$at exec cairn export ckpt -o kill --max-shard-size 16KB ) >/dev/null 2>&1
	[ $? -eq 137 ] || { bad=1; echo "# not killed at $at"; }
	# Behind the rename the folder is whole.
	if [ -e kill ]; then
		[ "$n" -ge 19 ] && diff -r kill three >/dev/null || { bad=1; echo "# half a folder after $at of $points"; }
		rm -rf kill
	fi
	cairn export ckpt -o kill --max-shard-size 16KB >out 2>err && diff -r kill three || { bad=1; echo "# rerun after $at"; cat err; }
	rm -rf kill
done
ok $bad "killed at 20 of them: no half folder, and the rerun gives the same bytes"
tap_done
