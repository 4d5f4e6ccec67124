#!/bin/sh
# reshard beside `cp --reflink=never` of the same bytes, both in memory-backed storage and until synced: interleaved pairs, the
# median of the ratios.  One JSON object a line, on standard output and at the end of build/bench.jsonl.
#
#	tests/bench/reshard.sh [LAYERS [PAIRS]]         29 layers are 4.1 GB; 7 pairs
#
# CAIRN_BENCH_DIR: where (default /dev/shm; three times the checkpoint must fit).  CAIRN_PYTHON: a Python with torch and h5py; then
# also PyTorch's distributed checkpoints (dcp_peer.py) load the same tensors into another layout.
# shellcheck shell=sh
set -eu
layers=${1:-29} pairs=${2:-7}
root=$(cd "$(dirname "$0")/../.." && pwd)
BIN=${BIN:-$root/bin} BUILD=${BUILD:-$root/build}
dir=$(mktemp -d "${CAIRN_BENCH_DIR:-/dev/shm}/cairn-reshard.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
layout="--tp 4 --pp 3 --dp 3"

cat >"$dir/config.json" <<END
{"model_type": "llama", "vocab_size": 32000, "hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": $layers,
 "num_attention_heads": 16, "num_key_value_heads": 8, "max_position_embeddings": 4096}
END
"$BIN/import-weights" --init "$dir/config.json" --tokenizer none -o "$dir/from" >/dev/null
bytes=$(du -sb "$dir/from" | cut -f 1)

seconds() { # seconds COMMAND...: of it and of sync
	start=$(date +%s%N)
	"$@" >/dev/null && sync -f "$dir"
	end=$(date +%s%N)
	awk "BEGIN { print ($end - $start) / 1e9 }"
}
line() { # line NAME VALUE UNIT PEER PEER_VALUE RATIO GOAL
	awk -v name="$1" -v value="$2" -v unit="$3" -v peer="$4" -v other="$5" -v ratio="$6" -v goal="$7" 'BEGIN {
		printf "{\"name\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"limit\": null, \"peer\": \"%s\", ", name, value, unit, peer
		printf "\"peer_value\": %.4g, \"ratio\": %.4g, \"goal\": %s, \"goal_met\": %s}\n", other, ratio, goal, (ratio >= goal ? "true" : "false")
	}' | tee -a "$BUILD/bench.jsonl"
}
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

pair=0
while [ $pair -lt "$pairs" ]; do
	# shellcheck disable=SC2086
	ours=$(seconds "$BIN/reshard" "$dir/from" -o "$dir/to" $layout)
	rm -rf "$dir/to"
	cp=$(seconds cp -r --reflink=never "$dir/from" "$dir/to")
	rm -rf "$dir/to"
	echo "$ours $cp"
	pair=$((pair + 1))
done >"$dir/times"
gb() { awk -v c="$1" -v b="$bytes" '{ print b / $c / 1e9 }' "$dir/times" | median; }
line "reshard, one rank -> tp 4, pp 3, dp 3" "$(gb 1)" GB/s "cp --reflink=never" "$(gb 2)" "$(awk '{ print $2 / $1 }' "$dir/times" | median)" 0.8

# shellcheck disable=SC2086
peak=$(/usr/bin/time -f %M "$BIN/reshard" "$dir/from" -o "$dir/to" $layout 2>&1 >/dev/null | tail -n 1) || peak=
case $peak in
''|*[!0-9]*) echo "memory: not measured, GNU time is not here" >&2 ;;
*) line "reshard, peak memory" "$(awk "BEGIN { print $peak / 1024 }")" MiB "bound" 1024 "$(awk "BEGIN { print 1048576 / $peak }")" 1 ;;
esac

[ -n "${CAIRN_PYTHON:-}" ] || { echo "PyTorch DCP: not run, CAIRN_PYTHON is not set" >&2; exit 0; }
rm -rf "$dir/to"
"$CAIRN_PYTHON" "$root/tests/bench/dcp_peer.py" "$dir/from" "$dir/dcp" >"$dir/peer"
line "reshard, beside loading into another layout" "$(gb 1)" GB/s "PyTorch DCP" "$(cat "$dir/peer")" \
	"$(awk -v o="$(gb 1)" -v p="$(cat "$dir/peer")" 'BEGIN { print o / p }')" 3
