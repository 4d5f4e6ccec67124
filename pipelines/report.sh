#!/bin/sh
# report.sh RUN: a run as one page of HTML on standard output, complete in itself: its curves, and the best and worst
# samples of the last step.
set -eu
. "$(dirname "$0")/lib.sh"
case $#${1:-} in 1-* | [!1]*) echo "usage: report.sh RUN >PAGE.html" >&2; exit 64 ;; esac

run=$1
scratch
cairn inspect "$run" --jsonl >"$work/metrics"
cairn inspect "$run" --line >"$work/line"

escape() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g; s/"/\&quot;/g'; }

# curve TITLE KEY [KEY]: the keys of metrics.jsonl over the steps, in one picture; nothing where no step has them.
curve() {
	awk -v title="$1" -v key1="$2" -v key2="${3:-}" '
	function value(key,  s, at) {
		at = index($0, "\"" key "\": ")
		if (!at) return "none"
		s = substr($0, at + length(key) + 4)
		sub(/[,}].*/, "", s)
		return s ~ /^-?[0-9]/ ? s : "none"
	}
	function px(step) { return left + (last > first ? (step - first) / (last - first) : 0.5) * wide }
	function py(v) { return top + (high > low ? (high - v) / (high - low) : 0.5) * tall }
	function text(x, y, anchor, s) { printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, s }
	function line(k,  i, points, d) {
		for (i = 1; i <= n[k]; i++) {
			points = points sprintf("%.1f,%.1f ", px(at[k, i]), py(y[k, i]))
			if (n[k] <= 60)
				d = d sprintf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\"><title>step %d: %.6g</title></circle>\n",
					px(at[k, i]), py(y[k, i]), at[k, i], y[k, i])
		}
		printf "<g class=\"k%d\"><polyline points=\"%s\"/>\n%s</g>\n", k, points, d
	}
	BEGIN { left = 70; top = 12; wide = 470; tall = 150; key[1] = key1; key[2] = key2 }
	{
		step = value("step")
		for (k = 1; k <= 2; k++) {
			# What step 0 says of training is about the run that the model comes from.
			if (key[k] == "" || (step == 0 && key[k] ~ /^train\//) || (v = value(key[k])) == "none") continue
			n[k]++; at[k, n[k]] = step; y[k, n[k]] = v
			if (!seen || v + 0 > high) high = v + 0
			if (!seen || v + 0 < low) low = v + 0
			if (!seen || step + 0 < first) first = step + 0
			if (!seen || step + 0 > last) last = step + 0
			seen = 1
		}
	}
	END {
		if (!seen) exit
		printf "<figure><figcaption>%s</figcaption>\n<svg viewBox=\"0 0 560 200\" role=\"img\">\n", title
		printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", left, top, wide, tall
		for (i = 0; i <= 4; i++) {
			v = low + (high - low) * i / 4
			if (high == low && i) break
			printf "<path d=\"M%d %.1fh%d\"/>\n", left, py(v), wide
			text(left - 6, py(v) + 4, "end", sprintf("%.4g", v))
		}
		text(px(first), top + tall + 16, "middle", first)
		if (last > first) text(px(last), top + tall + 16, "middle", last)
		text(left + wide / 2, top + tall + 32, "middle", "step")
		for (k = 1; k <= 2; k++) if (n[k]) line(k)
		printf "</svg>\n<p class=\"legend\">"
		for (k = 1; k <= 2; k++)
			if (n[k]) printf "<span class=\"k%d\">%s</span>, last %.6g. ", k, key[k], y[k, n[k]]
		print "</p></figure>"
	}' "$work/metrics"
}

# The newest samples that are scored, of training or else of validation.
newest() { find "$run/$1" -mindepth 1 -maxdepth 1 -name 'step-*[0-9]' 2>/dev/null | sort | tail -n 1; }

samples() { # samples TITLE OPTION
	printf '<h2>%s</h2>\n<table><tr><th>sample</th><th>question and answer</th><th>response</th></tr>\n' "$1"
	cairn inspect "$scored" --show 8 "$2" | escape | awk '
		function row() { if (head) printf "<tr><td>%s</td><td><pre>%s</pre></td><td><pre>%s</pre></td></tr>\n", head, ask, said }
		/^-- prompt / { row(); head = substr($0, 4); ask = said = ""; answer = 0; next }
		!answer && /^response: / { answer = 1; said = substr($0, 11); next }
		answer { said = said "\n" $0; next }
		{ ask = ask (ask == "" ? "" : "\n") $0 }
		END { row() }'
	echo '</table>'
}

title=$(printf '%s' "$run" | escape)
cat <<END
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<style>
body { font: 15px/1.4 sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
figure { display: inline-block; width: 560px; margin: 0 10px 20px 0; vertical-align: top }
figcaption { font-weight: bold }
svg text { font-size: 11px; fill: #555 } svg rect { fill: #fafafa } svg path { stroke: #ddd } svg polyline { fill: none; stroke-width: 1.5 }
.k1 polyline { stroke: #1f5fa8 } .k1 circle { fill: #1f5fa8 } span.k1 { color: #1f5fa8 }
.k2 polyline { stroke: #c2571a } .k2 circle { fill: #c2571a } span.k2 { color: #c2571a }
.legend { margin: 0; font-size: 13px }
table { border-collapse: collapse; width: 100% } td, th { border: 1px solid #ddd; padding: 4px 8px; vertical-align: top; text-align: left }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font-size: 13px }
</style></head><body>
<h1>$title</h1>
<p>$(escape <"$work/line")</p>
END
curve 'Reward of the training samples' train/reward
curve 'Accuracy' train/accuracy validation/accuracy
curve 'Loss' train/loss validation/val_loss
curve 'Tokens of a response' train/generation_lengths validation/avg_length
curve 'Norm of the gradient' train/grad_norm
curve 'Learning rate' train/lr
scored=$(newest scored)
[ -n "$scored" ] || scored=$(newest validation)
if [ -n "$scored" ] && [ -e "$scored/manifest.json" ]; then
	where=$(basename "$(dirname "$scored")")/$(basename "$scored")
	samples "Best of $where" --best
	samples "Worst of $where" --worst
fi
if [ -e "$run/recipe.yaml" ]; then
	printf '<h2>Recipe</h2>\n<details><summary>recipe.yaml</summary><pre>%s</pre></details>\n' "$(escape <"$run/recipe.yaml")"
fi
echo '</body></html>'
