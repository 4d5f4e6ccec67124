#!/bin/sh
# import-weights: what it takes and refuses, side files, random starts, interrupted runs and two writers at once.
# Weights, logits and types are in test_import.c.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
data=$CAIRN_ROOT/tests/data

# st FILE JSON: a safetensors file of that header and the data on stdin
st() {
	{ printf '%b' "\\0$(printf %o $((${#2} % 256)))\\0$(printf %o $((${#2} / 256)))\\0\\0\\0\\0\\0\\0"; printf %s "$2"; cat; } >"$1"
}
zeros() { head -c "$1" /dev/zero; }
field() { sed -n "s/.*\"$1\": \"*\([^\",}]*\).*/\1/p" "${2:-out}"; }
gone() { [ ! -e "$1" ] && [ ! -e "$1.tmp" ]; ok $? "$2"; }

# A shard that the index names is not there (B01).
cp -r "$data/hf-tiny-qwen2" qwen2
rm qwen2/model-00002-of-00003.safetensors
run 66 "a missing shard" import-weights qwen2 -o lost
has err 'model-00002-of-00003.safetensors' "is named"
gone lost "no checkpoint appears"

# Containers that are not what they say (B05, B07, B08).
mkdir bad; cp "$data/hf-tiny-llama/config.json" bad/
zeros 4 | st bad/model.safetensors '{"w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}}'
run 65 "a shape beyond its bytes" import-weights bad -o b
has err 'w: .*4 bytes.*4000000|w: .*4000000.*4' "tensor and both sizes are named"
zeros 8 | st bad/model.safetensors '{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[1],"data_offsets":[8,8]}}'
run 65 "a tensor of one element without bytes" import-weights bad -o b
zeros 63 | st bad/model.safetensors '{"w":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}'
run 65 "one byte is cut off" import-weights bad -o b
has err 'model.safetensors.*64.*63|model.safetensors.*63.*64' "file and both sizes are named"
zeros 65 | st bad/model.safetensors '{"w":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}'
run 65 "one byte is left over" import-weights bad -o b
has err 'model.safetensors.*64.*65|model.safetensors.*65.*64' "file and both sizes are named"
gone b "no checkpoint appears"

# gg FILE KV TENSORS: a GGUF v3 of one or no pair and one or no tensor, as printf's %b
gg() { { printf 'GGUF\003\0\0\0'; printf '%b' "\\0$2\\0\\0\\0\\0\\0\\0\\0\\0$3\\0\\0\\0\\0\\0\\0\\0$4"; zeros 64; } >"$1"; }
align='\0021\0\0\0\0\0\0\0general.alignment'
gg zero.gguf 1 0 '\0001\0\0\0\0\0\0\0w\0002\0\0\0\0001\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
gg string.gguf 0 1 "$align"'\0010\0\0\0\0001\0\0\0\0\0\0\0x'
gg align0.gguf 0 1 "$align"'\0004\0\0\0\0\0\0\0'
gg align24.gguf 0 1 "$align"'\0004\0\0\0\0030\0\0\0'
for f in zero string align0 align24; do
	run 65 "GGUF: $f" import-weights $f.gguf -o b
	has err "$f.gguf: " "in one line that names it"
done
has err 'general.alignment' "and the key"

# Every side file, odd bytes and all, comes back (B82: 100,000 bytes of template and of config).
cp -r "$data/hf-tiny-llama" full
printf '{"a": 1,\r\n "b": "\303\251"}' >full/special_tokens_map.json
printf '{}' >full/added_tokens.json
printf '{"a": 0}\n\n' >full/vocab.json
printf '#version: 0.2\n' >full/merges.txt
printf '\000\001binary' >full/tokenizer.model
printf '{"chat_template": "x"}' >full/chat_template.json
printf 'words' >full/README.md
long=$(zeros 100000 | tr '\0' x)
sed "s/\"use_cache\": true/\"note\": \"$long\"/" "$data/hf-tiny-llama/config.json" >full/config.json
printf '{# %s #}{{ messages[0].content }}' "$long" >full/chat_template.jinja
run 0 "a folder with every side file" import-weights full -o full.ckpt
is "$(cat err)" "" "in silence"
run 0 "and out again" cairn export full.ckpt -o full.back
is "$(cat err)" "" "in silence"
rm full/README.md
diff -r full full.back >differences; is "$(cat differences)" "" "the folder comes back, byte for byte"
run 0 "a .safetensors file with its config beside it" import-weights full/model.safetensors -o file.ckpt
is "$(field weights_digest)" "$(import-weights full -o full2.ckpt | field weights_digest -)" "is the same model"

# Another tokenizer, another template.
run 0 "--tokenizer bytes" import-weights full --tokenizer bytes --chat-template chatml -o bytes.ckpt
has bytes.ckpt/hf/tokenizer_config.json '<\|bos\|>' "its files are written"
has bytes.ckpt/hf/chat_template.jinja '^{{ bos_token }}.*im_start' "and the template, with the BOS that a rollout begins with"
has err 'im_end.*no tokens' "whose marks these bytes do not have, with a warning"
run 65 "a checkpoint" import-weights bytes.ckpt -o again.ckpt
has err 'bytes.ckpt: a checkpoint' "is told from a model of others"
[ ! -e bytes.ckpt/hf/merges.txt ]; ok $? "those of the other tokenizer are not there"
run 0 "--tokenizer none" import-weights full --tokenizer none -o none.ckpt
is "$(cat err)" "" "as asked, without a warning"
[ ! -e none.ckpt/tokenizer.h5 ]; ok $? "no tokenizer.h5"
cat >small.json <<'END'
{"model_type": "llama", "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2,
 "max_position_embeddings": 64, "vocab_size": 258}
END
run 65 "a tokenizer larger than the vocabulary" import-weights --init small.json -o b

# A random start.
sed 's/, *"vocab_size": 258//' small.json >init.json
run 0 "--init" import-weights --init init.json --seed 7 -o init.ckpt
digest=$(field weights_digest)
has init.ckpt/hf/config.json '"vocab_size": 259' "the vocabulary is the tokenizer's"
has init.ckpt/hf/config.json '"eos_token_id": 257' "and so is what ends a text"
run 0 "the same seed" import-weights --init init.json --seed 7 -o init2.ckpt
is "$(field weights_digest)" "$digest" "gives the same weights"
run 0 "another seed" import-weights --init init.json --seed 8 -o init3.ckpt
[ "$(field weights_digest)" != "$digest" ]; ok $? "gives others"
run 0 "in bfloat16" import-weights --init init.json --seed 7 --dtype bfloat16 -o init4.ckpt
is "$(field bytes)" $((2 * $(field parameters))) "takes two bytes each"
has init4.ckpt/hf/config.json '"torch_dtype": "bfloat16"' "and says so"
run 0 "with the tokenizer of a folder" import-weights --init init.json --tokenizer "$data/hf-tiny-llama" -o init5.ckpt
has init5.ckpt/hf/config.json '"vocab_size": 270' "whose size it takes"
cmp -s init5.ckpt/hf/tokenizer.json "$data/hf-tiny-llama/tokenizer.json"; ok $? "and whose files it keeps"

# The command line.
run 64 "no source" import-weights -o b
run 64 "no -o" import-weights full
run 64 "two sources" import-weights full --init init.json -o b
run 64 "an unknown type" import-weights full --dtype int8 -o b
run 64 "a layout that the model cannot have" import-weights full --tp 7 -o b
has err 'tp 7 does not divide' "is named"
run 69 "an adapter" import-weights full --base full.ckpt -o b
run 66 "no such source" import-weights nowhere -o b
echo 'policy: {model_name: full}' >recipe.yaml
run 65 "a recipe for a model" import-weights recipe.yaml -o b
has err 'recipe.yaml: no model; wanted a Hugging Face folder.*policy.model_name' "is no model, and says where one is named"
run 65 "a file of another kind" sh -c "echo hi >plain.txt; exec import-weights plain.txt -o b"
run 73 "the output exists" import-weights full -o full.ckpt
mkdir empty
run 73 "even empty" import-weights full -o empty
gone b "none of these left anything"
printf '{"model_type": "mamba"}' >mamba.json
run 69 "an unknown family" import-weights --init mamba.json -o b
has err 'mamba.json:1: model_type' "is named with its line"

# Killed at any write, fsync or rename: nothing under the name, and a second run gives the same (B79, B84).
run 0 "counted" env CAIRN_TEST_COUNT=points import-weights full -o count.ckpt
want=$(field weights_digest) points=$(cat points) bad=0 n=0
[ "$points" -gt 20 ]; ok $? "there are $points moments to be killed at"
while [ $n -lt 12 ]; do
	at=$((1 + n * (points - 1) / 11)) n=$((n + 1))
	( CAIRN_TEST_KILL=$at exec import-weights full -o kill.ckpt ) >/dev/null 2>&1
	[ $? -eq 137 ] || { bad=1; echo "# not killed at $at"; }
	# Behind the rename the checkpoint is whole.
	if [ -e kill.ckpt ]; then
		[ "$n" -ge 11 ] || { bad=1; echo "# a checkpoint after $at of $points"; }
		cairn export kill.ckpt -o kill.back >out 2>err || { bad=1; cat err; }
		rm -rf kill.ckpt kill.back
	fi
	import-weights full -o kill.ckpt >out 2>err && [ "$(field weights_digest)" = "$want" ] || { bad=1; echo "# rerun after $at"; cat err; }
	rm -rf kill.ckpt
done
ok $bad "killed at 12 of them: no half checkpoint, and the rerun gives the same weights"

# A second writer while the first is paused.
sed 's/"hidden_size": 12/"hidden_size": 384/; s/"vocab_size": 258/"vocab_size": 20000/' small.json >large.json
import-weights --init large.json -o two.ckpt >first 2>first.err & pid=$!
while [ ! -e two.ckpt.tmp/lock ] && kill -0 $pid 2>/dev/null; do :; done
kill -STOP $pid
run 75 "a second writer" import-weights full -o two.ckpt
kill -CONT $pid
wait $pid; is $? 0 "does not disturb the first"
run 0 "whose checkpoint can be read" cairn export two.ckpt -o two.back
is "$(field weights_digest)" "$(field weights_digest first)" "with the digest that it said"
run 0 "and imported again, in pieces" import-weights two.back -o two.again
is "$(field weights_digest)" "$(field weights_digest first)" "it is the same"

# A finished file cut in half.
for f in full2.ckpt/weights-*.h5; do size=$(wc -c <"$f"); head -c $((size / 2)) "$f" >half.h5; cp half.h5 "$f"; done
run 65 "a file cut in half" cairn export full2.ckpt -o half
has err 'full2.ckpt/weights-.*h5' "is named"
gone half "nothing is exported"

if [ -n "${CAIRN_SMOLLM2_GGUF:-}" ]; then
	run 0 "SmolLM2 from GGUF" import-weights "$CAIRN_SMOLLM2_GGUF" --dtype bfloat16 -o smol.ckpt
	is "$(field parameters) $(field tensors)" "134515008 272" "all parameters"
	has smol.ckpt/hf/config.json '"rope_theta": 100000.0' "RoPE"
	has smol.ckpt/hf/chat_template.jinja 'im_start' "chat template"
else
	skip "SmolLM2 from GGUF" "CAIRN_SMOLLM2_GGUF is not set"
fi
tap_done
