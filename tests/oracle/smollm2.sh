#!/bin/sh
# smollm2.py where the machine has what it needs: CAIRN_SMOLLM2_GGUF names the GGUF file of SmolLM2-135M-Instruct, CAIRN_PYTHON a
# Python with torch, transformers, accelerate, gguf and h5py.  Some minutes.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
if [ -z "${CAIRN_SMOLLM2_GGUF:-}" ] || [ -z "${CAIRN_PYTHON:-}" ] || [ ! -x "$BUILD/tests/tools/dump_logits" ]; then
	skip "SmolLM2 against transformers" "CAIRN_SMOLLM2_GGUF, CAIRN_PYTHON or build/tests/tools/dump_logits is missing"
	tap_done
fi
"$CAIRN_PYTHON" "$CAIRN_ROOT/tests/oracle/smollm2.py" "$BIN" "$BUILD" "$CAIRN_SMOLLM2_GGUF" work >rows 2>err
ok $? "the comparison ran"
grep '^#' rows
tab=$(printf '\t')
grep -v '^#' rows >checks
while IFS=$tab read -r name value goal verdict; do
	is "$verdict" ok "$name: $value (goal $goal)"
done <checks
[ -s checks ] || sed 's/^/# /' err | tail -n 5
tap_done
