#!/bin/sh
# Layers, shell scripts, manual pages.
. "$CAIRN_ROOT/tests/lib/tap.sh"
cd "$CAIRN_ROOT" || exit 1
run 0 "no folder includes one above or beside it" make -s layers
# shellcheck disable=SC2046
run 0 "shellcheck" shellcheck -S warning -x -P SCRIPTDIR -e SC1091,SC2154 $(git ls-files '*.sh' '*.sbatch')
for page in docs/*.[157]; do
	mandoc -T lint -W warning "$page" >"$TEST_TMP/lint" 2>&1
	ok $? "mandoc lint: $page"
	sed 's/^/# /' "$TEST_TMP/lint" | head -5
done
tap_done
