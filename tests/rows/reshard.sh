#!/bin/sh
# reshard.sh FOLDER: the rows of `make rows` about the speed of reshard, from the lines of tests/bench/reshard.sh.
# shellcheck shell=sh
set -eu
mkdir -p "$1"
lines=$1/lines
row() { # row NAME VALUE GOAL CONDITION-FOR-AWK
	verdict=$(awk "BEGIN { print ($4) ? \"ok\" : \"short\" }")
	printf 'ROW\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$verdict"
}
# of KEY: its value in $line
of() { printf '%s\n' "$line" | sed -n 's/.*"'"$1"'": "\{0,1\}\([^",}]*\).*/\1/p'; }
# measured START NAME GOAL: the row of the line whose name starts so; what the bench said where there is none
measured() {
	line=$(grep "^{\"name\": \"$1" "$lines" || true)
	if [ -z "$line" ]; then
		row "$2" "not run: $(tail -n 1 "$lines.err")" "$3" 0
	else
		row "$2" "$(of ratio): $(of value) and $(of peer_value) $(of unit)" "$3" "$(of ratio) >= $(of goal)"
	fi
}
sh "$CAIRN_ROOT/tests/bench/reshard.sh" >"$lines" 2>"$lines.err" || { cat "$lines.err" >&2; exit 1; }
measured 'reshard, one rank' "reshard of 4.1 GB, memory-backed, until synced, beside cp: median of 7 pairs" ">= 0.8"
measured 'reshard, peak' "reshard of 4.1 GB: its bound --memory over its peak" ">= 1"
measured 'loading into' "loading 4.1 GB into another layout, 4 ranks, beside PyTorch DCP" ">= 3"
measured 'reshard, files' "reshard of 4.1 GB, files written, beside PyTorch DCP that only loads" ">= 3"
