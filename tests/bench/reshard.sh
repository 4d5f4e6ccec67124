#!/bin/sh
# reshard beside `cp --reflink=never` of the same bytes, both in memory-backed storage and until synced: interleaved pairs, the
# median of the ratios.  One JSON object a line, on standard output and at the end of build/bench.jsonl.
#
#	tests/bench/reshard.sh [LAYERS [PAIRS]]         36 layers are 4.1 GB; 7 pairs
#
# CAIRN_BENCH_DIR: where (default /dev/shm; three times the checkpoint must fit, or it says so and measures nothing).  CAIRN_PYTHON:
# a Python with torch and h5py; then also PyTorch's distributed checkpoints (dcp_peer.py) load the same tensors into another layout,
# in memory alone and already touched.  Cairn's ranks do the same (load_boxes.c); reshard's time is that of writing files too.
# shellcheck shell=sh
set -eu
layers=${1:-36} pairs=${2:-7}
root=$(cd "$(dirname "$0")/../.." && pwd)
BIN=${BIN:-$root/bin} BUILD=${BUILD:-$root/build}
where=${CAIRN_BENCH_DIR:-/dev/shm}
need=$((3 * (400 + 105 * layers)))
free=$(df -Pm "$where" 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ "${free:-0}" -lt $need ]; then
	echo "reshard: not run, $where has ${free:-0} MB free, wanted $need (CAIRN_BENCH_DIR)" >&2
	exit 0
fi
dir=$(mktemp -d "$where/cairn-reshard.XXXXXX")
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
peak=$(/usr/bin/time -f %M "$BIN/reshard" "$dir/from" -o "$dir/to" $layout --memory 512MiB 2>&1 >/dev/null | tail -n 1) || peak=
case $peak in
''|*[!0-9]*) echo "memory: not measured, GNU time is not here" >&2 ;;
*) line "reshard, peak memory" "$(awk "BEGIN { print $peak / 1024 }")" MiB "--memory" 512 "$(awk "BEGIN { print 524288 / $peak }")" 1 ;;
esac

[ -n "${CAIRN_PYTHON:-}" ] || { echo "PyTorch DCP: not run, CAIRN_PYTHON is not set" >&2; exit 0; }
rm -rf "$dir/to"
"$CAIRN_PYTHON" "$root/tests/bench/dcp_peer.py" "$dir/from" "$dir/dcp" 2>"$dir/peer.err" >"$dir/peer" || { cat "$dir/peer.err" >&2; exit 1; }
rm -rf "$dir/dcp"
beside() { # beside NAME VALUE
	line "$1" "$2" GB/s "PyTorch DCP" "$(cat "$dir/peer")" "$(awk -v o="$2" -v p="$(cat "$dir/peer")" 'BEGIN { print o / p }')" 3
}
beside "reshard, files written, beside loading into another layout" "$(gb 1)"
if command -v mpirun >/dev/null 2>&1 && [ -e "$BUILD/tests/tools/comm_mpi.so" ]; then
	. "$root/tests/lib/ranks.sh"
	beside "loading into another layout, 4 ranks" "$(ranks 4 "$BUILD/tests/tools/load_boxes" "$dir/from")"
else
	echo "loading, 4 ranks: not run, no MPI" >&2
fi
