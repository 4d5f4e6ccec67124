#!/bin/sh
# eval.sh CKPT DATA.jsonl [-k K] [-n N] [-c RECIPE] [-o DIR] [key=value ...]: pass@k on a file of questions, with its
# standard error over questions.
#
#	pass@k = mean over questions of 1 - C(n - c, k) / C(n, k),  c of n samples right  (Chen et al. 2021)
#
# A sample is right when its reward is 1.  Sampling is the recipe's for validation (val_temperature, ...).
set -eu
. "$(dirname "$0")/lib.sh"
usage() { echo "usage: eval.sh CKPT DATA.jsonl [-k K] [-n N] [-c RECIPE] [-o DIR] [key=value ...]" >&2; exit 64; }
[ $# -ge 2 ] || usage
case $1 in -*) usage ;; esac
case $2 in -*) usage ;; esac

checkpoint=$1 data=$2
shift 2
k=1 n='' config='' out=''
# Options and key=value in any order: any other word goes to the end, and is for the programs.
words=$#
while [ "$words" -gt 0 ]; do
	case $1 in
	-[knco])
		[ "$words" -gt 1 ] || usage
		case $1 in -k) k=$2 ;; -n) n=$2 ;; -c) config=$2 ;; -o) out=$2 ;; esac
		shift 2; words=$((words - 2)) ;;
	*)
		set -- "$@" "$1"
		shift; words=$((words - 1)) ;;
	esac
done
n=${n:-$k}
case $k$n in *[!0-9]*) echo "eval.sh: -k $k -n $n: wanted whole numbers" >&2; exit 64 ;; esac
if [ "$k" -lt 1 ] || [ "$n" -lt "$k" ]; then echo "eval.sh: -k $k -n $n: wanted 1 <= k <= n" >&2; exit 64; fi

if [ -n "$out" ] && [ -e "$out" ]; then echo "eval.sh: $out: exists already, wanted a new name" >&2; exit 73; fi

scratch
out=${out:-$work/scored}
set -- ${config:+-c "$config"} "data.validation.data_path=$data" "grpo.val_num_generations_per_prompt=$n" "grpo.max_val_samples=null" "$@"
cairn rollout "$checkpoint" -o "$work/samples" --split validation "$@" >/dev/null
cairn score "$work/samples" -o "$out" "$@" >/dev/null
cairn inspect "$out" --jsonl | awk -v k="$k" '
	function field(name,  s) {
		if (!match($0, "\"" name "\": [^,}]*")) return "null"
		s = substr($0, RSTART, RLENGTH); sub(/^[^:]*: /, "", s); return s
	}
	{ id = field("prompt_id"); r = field("reward"); if (r == "null") { unscored++; next } n[id]++; if (r + 0 == 1) c[id]++ }
	END {
		for (id in n) {
			if (n[id] < k) { short++; continue }
			q = 1
			for (i = 0; i < k; i++) q *= (n[id] - c[id] - i > 0 ? n[id] - c[id] - i : 0) / (n[id] - i)
			m++; s += 1 - q; s2 += (1 - q) * (1 - q)
		}
		if (!m) { print "eval.sh: no question has " k " scored samples" > "/dev/stderr"; exit 65 }
		mean = s / m; v = m > 1 ? (s2 - m * mean * mean) / (m - 1) : 0
		printf "{\"pass@%d\": %.6f, \"standard_error\": %.6f, \"questions\": %d, \"unscored\": %d, \"left_out\": %d}\n",
			k, mean, sqrt((v > 0 ? v : 0) / m), m, unscored, short
	}'
