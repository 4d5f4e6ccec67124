#!/bin/sh
# One line for each acceptance row of the main job: `ROW name value goal ok|short`, fields between tabs.  It runs the tests and
# reads what they measured; a row that cannot run here is short, its value is `not run` and the reason.  Some minutes; ROWS_LONG=1
# adds the rows that take longer.
#
# ROWS_WITH: a command under which times are taken (taskset, nice, a lock).  CAIRN_SMOLLM2_GGUF, CAIRN_PYTHON: as
# tests/oracle/smollm2.sh.  CAIRN_SHARED: where the vectors of the tokenizers are.
# shellcheck shell=sh
set -u
PATH=$BIN:$PATH
CAIRN_ROOT=$(pwd)
export PATH CAIRN_ROOT BUILD BIN
tmp=$(mktemp -d "${TMPDIR:-/tmp}/cairn-rows.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
short=0 unrun=0

row() { # row NAME VALUE GOAL STATUS
	verdict=ok
	[ "$4" -eq 0 ] || { verdict=short; short=$((short + 1)); }
	case $2 in "not run"*) unrun=$((unrun + 1)) ;; esac
	printf 'ROW\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$verdict"
}
# tap NAME COMMAND...: runs a test; its output in $tmp/NAME, its sum in $sum, its status in $bad.
tap() {
	name=$1; shift
	mkdir -p "$tmp/work"
	TEST_TMP=$tmp/work "$@" >"$tmp/$name" 2>&1 </dev/null
	bad=$?
	rm -rf "$tmp/work"
	sum=$(awk '/^ok.*# SKIP/ { s++; next } /^ok/ { p++ } /^not ok/ { f++ } END { printf "%d passed, %d failed%s", p, f, s ? ", " s " skipped" : "" }' "$tmp/$name")
	[ "$bad" -eq 0 ] || echo "# $(grep '^not ok' "$tmp/$name" | head -n 1)"
}
worst() { # worst FILE PATTERN: the largest number behind `PATTERN`
	sed -n "s/.*$2\\([0-9.e+-]*\\).*/\\1/p" "$1" | sort -g | tail -n 1
}
skipped() { grep -q '^ok.*# SKIP' "$tmp/$1"; }

# -- parity with transformers, recorded ----------------------------------------------------------------
tap model "$BUILD/tests/kernels/test_model"
row "logits against transformers, float32, three families and variants" "$(worst "$tmp/model" 'logits of the first sequence: ')" 1e-5 $bad
row "gradient of every parameter, relative" "$(worst "$tmp/model" 'gradients of all.*worst ')" 1e-4 $bad
row "weights after one AdamW step, relative" "$(worst "$tmp/model" 'AdamW step: ')" 1e-5 $bad

# -- SmolLM2 ------------------------------------------------------------------------------------------
smollm2() {
	if [ -z "${CAIRN_SMOLLM2_GGUF:-}" ]; then
		why="not run: CAIRN_SMOLLM2_GGUF is not set, the path of SmolLM2-135M-Instruct as GGUF"
	elif [ -z "${CAIRN_PYTHON:-}" ]; then
		why="not run: CAIRN_PYTHON is not set, a Python with transformers"
	elif [ "${ROWS_LONG:-0}" != 1 ]; then
		why="not run: takes minutes; ROWS_LONG=1"
	else
		"$CAIRN_PYTHON" tests/oracle/smollm2.py "$BIN" "$BUILD" "$CAIRN_SMOLLM2_GGUF" "$tmp/smollm2" 2>"$tmp/smollm2.err" >"$tmp/smollm2.out"
		tr '\t' '|' <"$tmp/smollm2.out" | grep -v '^#' | while IFS='|' read -r name value goal verdict; do
			printf 'ROW\t%s\t%s\t%s\t%s\n' "$name" "$value" "$goal" "$verdict"
		done
		short=$((short + $(grep -c 'short$' "$tmp/smollm2.out")))
		[ -s "$tmp/smollm2.out" ] && return
		why="not run: the comparison failed: $(tail -n 1 "$tmp/smollm2.err")"
	fi
	row "SmolLM2 greedy, 20 prompts x 64 tokens, prompts that differ" "$why" "0, or 1 at a margin < 1e-4" 1
	row "GGUF of SmolLM2 to HF folder: ids and logits that differ" "$why" 0 1
}
smollm2

# -- exactness, tokenizers, files, kills ----------------------------------------------------------------
tap exact sh tests/tools/exact.sh
row "recorded minus recomputed log-probability, bits different" \
	"$(sed -n 's/^ok.* - \(b*float[0-9]*: [0-9]* tokens\)$/\1/p' "$tmp/exact" | tr '\n' ' ')tests: $sum" 0 $bad
tap tokenizer "$BUILD/tests/formats/test_tokenizer_real"
skipped tokenizer && bad=1
row "tokenizer: all vectors" "$sum" "all" $bad
tap import "$BUILD/tests/tools/test_import"; a=$bad b=$sum
tap export sh tests/tools/export.sh
row "import then export of an HF folder: byte-identical; a changed weight shows" "$b; $sum" "all" $((a + bad))
KILL_LONG=${ROWS_LONG:-0}
export KILL_LONG
tap kill sh tests/pipelines/kill.sh
row "kill -9 of a GRPO run, rerun: $([ "$KILL_LONG" = 1 ] && echo 'every point, 50 moments' || echo 'short form')" "$sum" "the same bits" $bad

# -- ranks ------------------------------------------------------------------------------------------------
# part NAME PATTERN: passed and failed among the lines that match.
part() { awk -v p="$2" '$0 ~ p { if (/^ok/) g++; else if (/^not ok/) b++ } END { printf "%d passed, %d failed", g, b; exit !(g && !b) }' "$tmp/$1"; }
tap layouts sh tests/tools/parallel.sh
if skipped layouts; then
	a="not run: no MPI" bad=1
else
	a="$(worst "$tmp/layouts" 'gradients: ') in $(grep -c 'ok .* ranks: ' "$tmp/layouts") layouts"
fi
row "gradients of every parameter, each layout against one rank, float32" "$a" 1e-5 $bad
skipped layouts || a="$(worst "$tmp/layouts" 'weights after 3 updates: ')"
row "weights after 3 steps, each layout against one rank, float32" "$a" 1e-5 $bad
skipped layouts || { a=$(part layouts 'log-probabilities: bits') && bad=0 || bad=1; }
row "log-probabilities of one rank computed again in each layout, bits different" "$a" 0 $bad
tap ranks sh tests/tools/ranks.sh
if skipped ranks; then
	a="not run: no MPI" b=$a bad=1 c=1
else
	a=$(part ranks 'are six|the same bits') && bad=0 || bad=1
	b=$(part ranks 'has the same bits') && c=0 || c=1
fi
row "train 3, reshard or load elsewhere, train 3 against train 6" "$a" "the same bits in one layout, else 1e-5" $bad
row "the same run twice in one layout" "$b" "the same bits" $c

# -- times ----------------------------------------------------------------------------------------------
# script NAME: tests/rows/NAME.sh, which prints rows itself
script() {
	# shellcheck disable=SC2086 # a command and its arguments
	${ROWS_WITH:-} sh "tests/rows/$1.sh" "$tmp/$1.d" >"$tmp/$1" 2>"$tmp/$1.err"
	bad=$?
	cat "$tmp/$1"
	short=$((short + $(grep -c 'short$' "$tmp/$1")))
	unrun=$((unrun + $(grep -c '	not run' "$tmp/$1")))
	[ $bad -eq 0 ] || { row "tests/rows/$1.sh" "failed: $(tail -n 1 "$tmp/$1.err")" "all its rows" 1; }
	rm -rf "$tmp/$1.d"
}
script speed
script parallel
script cuda
if [ "${ROWS_LONG:-0}" = 1 ]; then
	script load-save
	script reshard
else
	row "reshard of 4 GB in memory-backed storage beside cp, and beside PyTorch DCP" "not run: takes minutes; ROWS_LONG=1" \
		"80 % and 3 x" 1
	for where in memory-backed "on disk"; do
		row "load plus save in a GRPO step on SmolLM2, $where" "not run: takes ten minutes; ROWS_LONG=1" \
			"$([ "$where" = "on disk" ] && echo '1.25 x bytes / rate of fsync' || echo '< 10 %')" 1
	done
fi
echo "# $short rows are short, $unrun of them not run"
[ "$short" -eq 0 ]
