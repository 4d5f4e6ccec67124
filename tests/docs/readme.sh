#!/bin/sh
# The README's own code blocks, in order, in a copy of the tree.  Blocks marked `sh` run, one shell for all of them;
# those marked `text` are only to be shown.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"

# blocks FILE: block-01.sh, ... in the present directory
blocks() {
	awk '/^```sh$/ { n++; on = 1; next } /^```/ { on = 0 } on { print >(sprintf("block-%02d.sh", n)) }' "$1"
}

blocks "$CAIRN_ROOT/README.md"
n=$(find . -name 'block-*.sh' | wc -l)
ok $((n < 6)) "the README has $n blocks to run"
is "$(awk '/^```/ { open = !open; if (open && !/^```(sh|text)$/) print }' "$CAIRN_ROOT/README.md")" "" "every block is marked sh or text"
[ "$(wc -l <"$CAIRN_ROOT/README.md")" -lt 150 ]
ok $? "fewer than 150 lines"

# What was built stays what it is: the copy has the programs, and make, which has its own test, is only heard here.
mkdir tree
cp -r "$CAIRN_ROOT/pipelines" "$CAIRN_ROOT/docs" "$CAIRN_ROOT/README.md" "$CAIRN_ROOT/Makefile" tree/
ln -s "$BIN" tree/bin
mkdir fake
printf '#!/bin/sh\necho "make $*" >>"%s/made"\n' "$TEST_TMP" >fake/make
chmod +x fake/make

# Each block ends by telling that it was reached, so that the first that fails is the one that is named.
{
	echo 'set -e'
	for b in block-*.sh; do
		cat "$b"
		echo "echo $b >>'$TEST_TMP/reached'"
	done
} >all.sh
: >reached
(cd tree && PATH=$TEST_TMP/fake:$PATH sh ../all.sh >../out 2>../err)
for b in block-*.sh; do
	grep -qx "$b" reached
	rc=$?
	ok $rc "$b: $(grep -v '^#' "$b" | head -n 1)"
	if [ $rc -ne 0 ]; then sed 's/^/# /' err | tail -n 20; break; fi
done
is "$(sort -u made | tr '\n' ' ')" "make  make setup " "make builds"
for target in setup check demo install help; do
	grep -q "^$target:" "$CAIRN_ROOT/Makefile"
	ok $? "make $target is there"
done

# What the text promises of the results.
run 0 "the checkpoint of the last step" cairn inspect tree/run --latest --step
is "$(cat out)" 10 "is step 10"
run 0 "the export is a model" test -s tree/my-model/model.safetensors
run 0 "the page of the run" grep -q '<svg' tree/report.html
is "$(grep -c '"train/logprob_bits_different": 0[,}]' tree/run/metrics.jsonl)" 10 "ten steps on what was sampled, to the bit"
grep -o '](\([^)]*\))' "$CAIRN_ROOT/README.md" | tr -d ']()' >links
while read -r link; do
	test -e "$CAIRN_ROOT/$link"
	ok $? "link: $link"
done <links
# The lists of faults: every number, and tests that are there.
for list in INVARIANTS CASES; do
	grep -oE '(tools|kernels|libcommon|formats|pipelines|ci|fuzz)/[A-Za-z0-9_-]+\.(sh|c|py)' "$CAIRN_ROOT/tests/$list.md" | sort -u >named
	while read -r name; do [ -e "$CAIRN_ROOT/tests/$name" ] || echo "$name"; done <named >absent
	is "$(cat absent)" "" "$list.md: its $(wc -l <named) tests are there"
done
sed -n 's/^| \([0-9, ]*\) |.*/\1/p' "$CAIRN_ROOT/tests/INVARIANTS.md" | tr -d ' ' | tr ',' '\n' >numbers
is "$(tr '\n' ' ' <numbers)" "$(seq -s ' ' 1 35) " "INVARIANTS.md: 1 to 35, each once"
tap_done
