#!/bin/sh
# Compressed checkpoints: every program reads one, with the digests and the results of the plain one; other programs
# read it through the plugin; what is no compression, and what is damaged, is refused.
# Chunks, boxes and mutants are in tests/formats/test_checkpoint_zstd.c.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/tiny.sh"
plugin=${BUILD:-$CAIRN_ROOT/build}/lib/cairn/hdf5
field() { sed -n "s/.*\"$1\": \"*\([^\",}]*\).*/\1/p" "${2:-out}"; }
tiny_model start
tiny_data
tiny_recipe | sed '/model_name/d' >recipe.yaml
# Large enough that its matrices are cut into chunks.
sed -i 's/"hidden_size": 16/"hidden_size": 64/; s/"intermediate_size": 32/"intermediate_size": 176/' model.json
import() { cairn import-weights --init model.json --tokenizer bytes --chat-template plain --seed 1 "$@"; }

# The same weights, smaller.
run 0 "import" import -o plain
digest=$(field weights_digest)
for level in zstd zstd:1 zstd:19; do
	run 0 "--compress $level" import --compress $level -o $level
	is "$(field weights_digest)" "$digest" "the same digest"
done
[ "$(du -sb zstd | cut -f1)" -lt "$(du -sb plain | cut -f1)" ]; ok $? "fewer bytes"
has zstd/manifest.json '"zstd"' "the manifest tells it"
run 0 "once more" import --compress zstd:1 --threads 1 -o one
diff -r -x manifest.json zstd:1 one; ok $? "in one thread: the same files"

# Every program reads it.
run 0 "inspect --verify" cairn inspect --verify zstd
run 0 "inspect --diff" cairn inspect --diff plain zstd
for c in plain zstd; do
	run 0 "export $c" cairn export $c -o $c.hf
	cairn rollout $c --prompts train.jsonl -o $c.samples -c recipe.yaml >$c.rollout 2>err
	ok $? "rollout $c"
	cairn inspect --jsonl $c.samples >$c.jsonl
	run 0 "score $c" cairn score $c.samples -o $c.scored -c recipe.yaml --reference $c
	run 0 "train-step $c" cairn train-step $c $c.scored -o $c.next -c recipe.yaml
	grep -E '"(weights|optimizer)_digest": "' $c.next/manifest.json >$c.digest
	is "$(wc -l <$c.digest)" 2 "weights and optimizer state"
	run 0 "its export" cairn export $c.next -o $c.next.hf
done
diff -r plain.hf zstd.hf >out; ok $? "the same export, byte for byte"
cmp plain.jsonl zstd.jsonl; ok $? "the same samples, log-probabilities and all"
cmp plain.digest zstd.digest; ok $? "the same weights after a step"
diff -r plain.next.hf zstd.next.hf >out; ok $? "and in their export"
run 0 "again, from that export" cairn import-weights zstd.hf --compress zstd:3 -o back
is "$(field weights_digest)" "$digest" "it is the same model"

# The command line.
for bad in zstd:0 zstd:99 zstd: zstd:fast lz4 ''; do
	run 64 "--compress '$bad'" import --compress "$bad" -o b
	has err "^[^ ]*import-weights: .*wanted (zstd|a level)" "one sentence says what is wanted"
done
[ ! -e b ] && [ ! -e b.tmp ]; ok $? "nothing is left"

# Damage in packed bytes.
cp -r zstd bad
shard=$(echo bad/weights-*-0000.h5)
at=$(h5dump -pH "$shard" | sed -n 's/.*OFFSET \([0-9]*\).*/\1/p' | head -n 1)
printf 'X' | dd of="$shard" bs=1 seek=$((${at:-20000} / 2)) conv=notrunc 2>/dev/null
run 65 "a byte in the middle" cairn inspect --verify bad
has err 'bad/weights-.*h5' "names the file"
run 65 "and for a program that reads it" cairn export bad -o b
has err 'weight\)|bytes around' "names what is damaged"
cp zstd/weights-*.h5 bad; head -c 9000 zstd/weights-*.h5 >"$shard"
run 65 "a shard cut off" cairn rollout bad --prompts train.jsonl -o b

# Other programs of HDF5.
for name in model.embed_tokens.weight model.layers.1.mlp.down_proj.weight model.norm.weight; do
	for c in plain zstd zstd:19; do
		( cd / && HDF5_PLUGIN_PATH=$plugin h5dump -d "/weights/$name" "$TEST_TMP/$c/index.h5" 2>&1 ) | tail -n +2 >"$c.txt"
	done
	has plain.txt '\(0.*\): -?[0-9]' "h5dump shows $name"
	cmp plain.txt zstd.txt && cmp plain.txt zstd:19.txt; ok $? "and the same of the compressed"
done
python=
for p in ${CAIRN_PYTHON:-} python3; do "$p" -c 'import h5py, numpy' 2>/dev/null && { python=$p; break; }; done
if [ -n "$python" ]; then
	run 0 "h5py through the plugin" env "HDF5_PLUGIN_PATH=$plugin" "$python" - <<-'END'
		import h5py, numpy
		a, b = (h5py.File(c + "/index.h5")["weights"] for c in ("plain", "zstd"))
		assert sorted(a) == sorted(b) and len(a) > 10
		for name in a:
		    x, y = numpy.asarray(a[name]), numpy.asarray(b[name])
		    assert x.shape == y.shape and x.dtype == y.dtype and numpy.isfinite(x).all()
		    assert x.tobytes() == y.tobytes() and (x != 0).any(), name
	END
else
	skip "h5py through the plugin" "no python3 with h5py"
fi
tap_done
