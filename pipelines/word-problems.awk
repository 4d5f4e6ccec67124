# Word problems in one step, with their answers, as JSON lines.
#
#	awk -v seed=1 -v count=500 -v skip=0 -f word-problems.awk
#
# A problem is a function of (seed, its number); those that were made before in the run are left out, so that two sets of one
# seed, one with skip=0 and one with skip=N, have nothing in common.

function draw(n) { state = (state * 16807) % 2147483647; return state % n }
function pick(list,  a, n) { n = split(list, a, " "); return a[1 + draw(n)] }
function number(lo, hi) { return lo + draw(hi - lo + 1) }

function problem(  who, thing, a, b, kind) {
	who = pick("Tom Anna Ben Clara David Emma Frank Grace Henry Ivy Jack Kate Leo Mia Noah Olga")
	thing = pick("apples books coins pencils stamps marbles cards shells stickers flowers")
	kind = draw(3)
	a = number(2, 12); b = number(2, 9)
	if (kind == 0) { answer = a + b; return who " has " a " " thing " and buys " b " more. How many " thing " does " who " have now?" }
	if (kind == 1) { answer = a + 9 - b; return who " has " (a + 9) " " thing " and gives away " b ". How many " thing " are left?" }
	answer = a + b
	return who " finds " a " " thing " on Monday and " b " on Tuesday. How many " thing " is that in all?"
}

BEGIN {
	state = 1 + (seed * 7919) % 2147483646
	for (i = 0; i < 20; i++) draw(2)
	while (made < skip + count) {
		q = problem()
		if (q in seen) continue
		seen[q] = 1
		if (++made > skip)
			printf "{\"prompt\": \"%s Answer with the number only.\", \"answer\": \"%d\"}\n", q, answer
	}
}
