#include "libcommon/shard.h"

#include "tests/lib/tap.h"

static uint64_t seed = 1;

static long draw(long least, long most)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return least + (long)(seed % (uint64_t)(most - least + 1));
}

static struct param_table table;

static struct param *add(const char *name, int layer, int rank, const long *shape)
{
	struct param *p = &table.p[table.n++];

	*p = (struct param){ .name = xasprintf("%d.%s", layer, name), .layer = layer, .rank = rank, .tp_axis = -1, .tp_unit = 1 };
	memcpy(p->shape, shape, (size_t)rank * sizeof(long));
	return p;
}

static void split(struct param *p, int axis, long unit, long fine)
{
	p->tp_axis = axis;
	p->tp_unit = unit;
	p->tp_fine = fine;
}

/* A model with every kind of cut: vocabulary blocks, heads, groups that ranks share, columns, norms, experts, a frozen one. */
static void make_table(long layers)
{
	long h = draw(1, 9), groups = draw(1, 4), d = 2 * draw(1, 3), f = draw(1, 12), e = draw(1, 9), v = 3 * draw(1, 5) - draw(0, 2);
	struct param *p;

	table = (struct param_table){ .p = xcalloc((size_t)layers * 8 + 2, sizeof(*table.p)) };
	split(p = add("embed", -1, 2, (long[]){ v, h }), 0, 3, 3);
	p->kind = PARAM_EMBED;
	for (int i = 0; i < layers; i++) {
		add("norm", i, 1, (long[]){ h });
		split(add("q", i, 2, (long[]){ groups * 2 * d, h }), 0, 2 * d, d);
		split(add("k", i, 2, (long[]){ groups * d, h }), 0, d, 0);
		split(add("o", i, 2, (long[]){ h, groups * 2 * d }), 1, 2 * d, d);
		split(add("b", i, 1, (long[]){ groups * d }), 0, d, 0);
		add("router", i, 2, (long[]){ e, h })->role = draw(0, 1) ? ROLE_FROZEN : ROLE_PARAM;
		p = add("gate", i, 3, (long[]){ e, f, h });
		split(p, 1, 1, 1);
		p->expert = true;
		p = add("down", i, 3, (long[]){ e, h, f });
		split(p, 2, 1, 1);
		p->expert = true;
	}
	add("last", -1, 1, (long[]){ h })->kind = PARAM_FINAL_NORM;
}

static long pick(const long *list, int n)
{
	return list[draw(0, n - 1)];
}

static void make_layout(struct layout *l, long layers)
{
	layout_init(l, layers);
	l->tp = pick((long[]){ 1, 2, 3, 4 }, 4);
	l->cp = draw(1, 2);
	l->dp = pick((long[]){ 1, 2, 3, 5, 7 }, 5);
	l->pp = draw(1, layers + 1);
	do {
		l->ep = draw(1, 8);
		l->etp = draw(1, 4);
	} while (l->tp * l->cp * l->dp % (l->ep * l->etp));
	l->stage_of_layer = xcalloc((size_t)layers, sizeof(long));
	for (long i = 0, stage = 0; i < layers; i++) {
		l->stage_of_layer[i] = stage;
		stage += draw(0, 2);
		stage = stage < l->pp ? stage : l->pp - 1;
	}
}

static bool same_box(const struct box *a, const struct box *b)
{
	return a->rank == b->rank && !memcmp(a->start, b->start, sizeof(a->start)) && !memcmp(a->extent, b->extent, sizeof(a->extent));
}

/* The pieces of every parameter tile it once, in table order; each writer is of the stage and computes with the box. */
static bool tiles(const struct shard_pieces *s, const struct layout *l, bool optimizer)
{
	long at = 0;
	struct err e = ERR_INIT;

	for (long i = 0; i < table.n; i++) {
		const struct param *p = &table.p[i];
		struct box b[4096];
		long n = 0;

		for (; at < s->n && s->piece[at].param == i; at++) {
			struct place w = layout_place(l, s->piece[at].rank);
			struct box own = param_box(p, l, &w), in = s->piece[at].box, both;

			if (w.pp != param_stage(p, l) || !box_volume(&in) || box_intersect(&both, &in, &own) != box_volume(&in))
				return false;
			/* Weights: all of what the rank has; optimizer state: whole rows of it. */
			if (!optimizer && !same_box(&in, &own))
				return false;
			for (int k = 1; k < p->rank && optimizer; k++)
				if (in.start[k] != own.start[k] || in.extent[k] != own.extent[k])
					return false;
			b[n++] = in;
		}
		if (optimizer && p->role != ROLE_PARAM) {
			if (n)
				return false;
			continue;
		}
		if (box_tiling(b, n, p->shape, p->rank, p->name, &e)) {
			printf("# %s\n", e.msg);
			return false;
		}
	}
	return at == s->n;
}

/* The header's text, said again element by element: who owns element x of the arena of a rank. */
static long owner(const struct layout *l, const struct place *at, bool expert, long members, long x)
{
	long total = 0, best = 0;

	for (long i = 0; i < table.n; i++)
		if (table.p[i].role == ROLE_PARAM && table.p[i].expert == expert && param_stage(&table.p[i], l) == at->pp) {
			struct box b = param_box(&table.p[i], l, at);

			total += box_volume(&b);
		}
	for (long m = 0; m < members; m++) {
		long want = total * m / members, first = 0;

		for (long i = 0; i < table.n; i++) {
			struct box b = param_box(&table.p[i], l, at);
			long n = box_volume(&b);

			if (table.p[i].role != ROLE_PARAM || table.p[i].expert != expert || param_stage(&table.p[i], l) != at->pp)
				continue;
			if (want >= first && want < first + n) {
				long row = n / b.extent[0];

				want = first + (want - first) / row * row;
				break;
			}
			first += n;
		}
		if (x >= want)
			best = m;
	}
	return best;
}

/* Arenas of all members: consecutive, alike in `whole` and `count`, and cut as the header says. */
static bool arenas(const struct layout *l, struct place at, bool expert)
{
	long members = expert ? layout_edp(l) : l->dp * l->cp, next = 0;
	bool good = true;

	for (long m = 0; m < members; m++) {
		struct shard_arena a;
		long n = 0;

		at.edp = m;
		at.dp = m / l->cp;
		at.cp = m % l->cp;
		shard_arena_init(&a, &table, l, &at, expert);
		good &= a.members == members && a.first == next && (size_t)a.n == a.count[m];
		for (long k = 0; k < a.parts; k++) {
			good &= a.own[k].first == a.first + n && a.own[k].n == box_volume(&a.own[k].box) && a.own[k].n > 0;
			n += a.own[k].n;
		}
		good &= n == a.n;
		for (long x = a.first; x < a.first + a.n && a.total < 2000; x += 1 + x % 7)
			good &= owner(l, &at, expert, members, x) == m;
		next += a.n;
		if (m == members - 1)
			good &= next == a.total;
		shard_arena_release(&a);
	}
	return good;
}

static void one_layout(long *empty, long *uneven, long *odd)
{
	long layers = draw(1, 5);
	struct layout l;
	struct shard_pieces w, o;
	bool good = true;

	make_table(layers);
	make_layout(&l, layers);
	shard_weights(&w, &table, &l);
	shard_optimizer(&o, &table, &l);
	good = tiles(&w, &l, false) && tiles(&o, &l, true);
	struct place at = { .pp = draw(0, l.pp - 1), .tp = draw(0, l.tp - 1), .ep = draw(0, l.ep - 1), .etp = draw(0, l.etp - 1) };
	good &= arenas(&l, at, false) && arenas(&l, at, true);
	*uneven += l.pp > 1 && layers % l.pp;
	*odd += l.dp == 3 || l.dp == 5 || l.dp == 7;
	for (long i = 0; i < table.n; i++) {
		struct place first = { 0 };
		struct box b = param_box(&table.p[i], &l, &first);

		if (!box_volume(&b)) {
			++*empty;
			break;
		}
	}
	if (!good)
		printf("# tp %ld cp %ld dp %ld pp %ld ep %ld etp %ld\n", l.tp, l.cp, l.dp, l.pp, l.ep, l.etp);
	if (!good)
		ok(false, "a layout");
	shard_pieces_release(&w);
	shard_pieces_release(&o);
	layout_release(&l);
	param_table_release(&table);
}

/* Eight norms of one size and four ranks that hold them all: two each. */
static void shares(void)
{
	struct layout l;
	struct shard_pieces w;
	long n[4] = { 0 };

	table = (struct param_table){ .p = xcalloc(8, sizeof(*table.p)) };
	layout_init(&l, 1);
	l.tp = l.dp = 2;
	for (int i = 0; i < 8; i++)
		add("norm", 0, 1, (long[]){ 10 });
	shard_weights(&w, &table, &l);
	for (long i = 0; i < w.n; i++)
		n[w.piece[i].rank]++;
	ok(w.n == 8 && n[0] == 2 && n[1] == 2 && n[2] == 2 && n[3] == 2, "copies are shared out");
	shard_pieces_release(&w);
	param_table_release(&table);
}

/* 3 rows of 4, then 5 elements, among 2: 17 / 2 = 8 is the first element of row 2. */
static void by_hand(void)
{
	struct layout l;
	struct shard_arena a;
	struct place at = { .dp = 1 };

	table = (struct param_table){ .p = xcalloc(2, sizeof(*table.p)) };
	layout_init(&l, 1);
	l.dp = 2;
	add("a", 0, 2, (long[]){ 3, 4 });
	add("b", 0, 1, (long[]){ 5 });
	shard_arena_init(&a, &table, &l, &at, false);
	ok(a.total == 17 && a.first == 8 && a.n == 9 && a.parts == 2 && a.count[0] == 8 && a.count[1] == 9, "17 elements between two");
	ok(a.own[0].param == 0 && a.own[0].box.start[0] == 2 && a.own[0].box.extent[0] == 1 && a.own[0].box.extent[1] == 4 &&
		   a.own[1].param == 1 && a.own[1].first == 12 && a.own[1].box.extent[0] == 5,
	   "the last row and the vector");
	shard_arena_release(&a);
	param_table_release(&table);
}

int main(void)
{
	long empty = 0, uneven = 0, odd = 0;

	by_hand();
	shares();
	for (int i = 0; i < 600; i++)
		one_layout(&empty, &uneven, &odd);
	printf("# 600 layouts: %ld with empty boxes, %ld with uneven stages, %ld with DP of 3, 5 or 7\n", empty, uneven, odd);
	ok(empty > 100 && uneven > 150 && odd > 200, "the pieces of 600 layouts tile every tensor once");
	return done();
}
