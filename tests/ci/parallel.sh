#!/bin/sh
# Every layout of up to 8 ranks for a few models, against one rank: `make check-parallel`.
# shellcheck shell=sh disable=SC2154
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
. "$CAIRN_ROOT/tests/lib/layouts.sh"
need_ranks "models over several ranks"

model tied qwen3 8 2 true 80
model plain qwen2 6 3 false 84
model wide llama 8 4 false 80
model one_kv llama 4 1 true 88
experts='"num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 36, "norm_topk_prob": true'
[ -n "${DENSE-}" ] || model experts qwen3_moe 4 2 false 80 "$experts"

# NAME HEADS KV WIDTH EXPERTS on stdin -> BITS N NAME key=value ...
layouts_of() {
	awk -v tp="$tp" -v pp="$pp" -v cp="$cp" -v ep="$ep" -v etp="$etp" -v sp="$sp" -v first="$first" -v turns="$turns" '
	function out(n, name, t, p, c, d, e, x, how) {
		s = (t > 1 ? " " tp "=" t : "") (p > 1 ? " " pp "=" p : "") (c > 1 ? " " cp "=" c : "")
		s = s (e > 1 ? " " ep "=" e : "") (x > 1 ? " " etp "=" x : "") how
		print (kv % t == 0 ? "like" : "near_one"), n, name s
	}
	{ heads = $2; kv = $3; width = $4; E = $5
	for (t = 1; t <= 8; t++) for (p = 1; p <= 5; p++) for (c = 1; c <= 4; c++) for (d = 1; d <= 8; d++) {
		n = t * p * c * d
		if (n < 2 || n > 8 || heads % t || width % t || (kv % t && t % kv)) continue
		for (e = 1; e <= (E ? 6 : 1); e++) for (x = 1; x <= (E ? 2 : 1); x++) {
			if ((t * c * d) % (e * x) || (E && E % e) || (E && e * x == 1 && n > 4)) continue
			k++
			how = t > 1 && (E || k % 2) ? " " sp : ""
			if (p > 1 && k % 3 == 0) how = how " " first "=1"
			else if (p == 2 && k % 3 == 1) how = how " " turns "=2"
			out(n, $1, t, p, c, d, e, x, how)
		}
	} }'
}
{
	echo tied 8 2 80; echo plain 6 3 84; echo wide 8 4 80; echo one_kv 4 1 88
	[ -n "${DENSE-}" ] || echo experts 4 2 80 12
} | layouts_of >list
echo "# $(wc -l <list) layouts"
while read -r how n name rest; do
	# shellcheck disable=SC2086
	"$how" "$n" "$name" $rest </dev/null
done <list
[ "$(wc -l <list)" -ge 150 ]; ok $? "at least 150 layouts"
tap_done
