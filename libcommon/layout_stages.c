#include "libcommon/layout.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1 << 20 };

void layout_interleave(struct layout *l, long pp, long turns)
{
	long runs = pp * turns, each = l->layers / runs, larger = l->layers % runs, layer = 0;

	free(l->stage_of_layer);
	l->stage_of_layer = NULL;
	l->pp = pp;
	if (pp == 1)
		return;
	l->stage_of_layer = xcalloc((size_t)l->layers + 1, sizeof(long));
	for (long run = 0; layer < l->layers; run++)
		for (long k = 0; k < each + (run < larger); k++)
			l->stage_of_layer[layer++] = run % pp;
}

void layout_balance(struct layout *l, long pp)
{
	layout_interleave(l, pp, 1);
}

/* A new turn begins where the last stage is followed by the first. */
static bool turns_at(const struct layout *l, long layer)
{
	return l->pp > 1 && layer > 0 && layout_stage(l, layer) < layout_stage(l, layer - 1);
}

long layout_turn(const struct layout *l, long layer)
{
	long n = 0;

	for (long i = 1; i <= layer; i++)
		n += turns_at(l, i);
	return n;
}

long layout_turns(const struct layout *l)
{
	return layout_turn(l, l->layers - 1) + 1;
}

long layout_bad_stage(const struct layout *l)
{
	bool whole = true, many = layout_turns(l) > 1;  /* whole: no stage of this turn was passed over */
	long stage = 0, before = 0;

	for (long i = 0; i < l->layers; i++, before = stage) {
		stage = layout_stage(l, i);
		if (stage < 0 || stage >= l->pp)
			return i;
		if (turns_at(l, i)) {
			if (stage || before != l->pp - 1 || !whole)
				return i;
			continue;
		}
		whole = whole && stage - before <= 1 && (i || !stage);
	}
	return many && (!whole || stage != l->pp - 1) ? l->layers - 1 : -1;
}

struct stage_list { long *count, n, cap, turns, width; };

/* "8,8,9,7" -> 8 at count[0], ...; "2,2/2,1": two turns of width 2.  -1: no such list. */
static int parse_list(struct stage_list *s, const char *text, long most)
{
	char *end;

	*s = (struct stage_list){ .turns = 1 };
	for (;; text = end + 1) {
		long v = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;

		if (v < 0 || v > most || (*end && *end != ',' && *end != '/') || s->n > 1 << 20)
			return -1;
		GROW(s->count, s->n, s->cap);
		s->count[s->n++] = v;
		if (*end == ',')
			continue;
		s->width = s->turns == 1 ? s->n : s->width;
		if (s->n != s->turns * s->width)
			return -1;
		if (!*end)
			return 0;
		s->turns++;
	}
}

static int set_stages(struct layout *l, const struct stage_list *s, const char *text, struct err *e)
{
	struct layout set = *l;
	long layer = 0;

	set.pp = s->width;
	set.stage_of_layer = xcalloc((size_t)l->layers + 1, sizeof(long));
	for (long i = 0; i < s->n; i++)
		for (long k = 0; k < s->count[i]; k++)
			set.stage_of_layer[layer++] = i % s->width;
	if (s->turns > 1 && (layout_bad_stage(&set) >= 0 || layout_turns(&set) != s->turns)) {
		free(set.stage_of_layer);
		return err_set(e, EX_USAGE, "stages %.60s: in several turns every stage needs a layer in each", text);
	}
	free(l->stage_of_layer);
	*l = set;
	return 0;
}

int layout_parse_stages(struct layout *l, const char *text, struct err *e)
{
	struct stage_list s;
	long sum = 0;
	int rc = parse_list(&s, text, l->layers);

	for (long i = 0; i < s.n; i++)
		sum += s.count[i];
	if (rc)
		err_set(e, EX_USAGE, "stages \"%.60s\": wanted the layers of each stage like 8,8,9,7, together %ld", text, l->layers);
	else if (sum != l->layers)
		rc = err_set(e, EX_USAGE, "stages %.60s: together %ld layers, but the model has %ld", text, sum, l->layers);
	else
		rc = set_stages(l, &s, text, e);
	free(s.count);
	return rc;
}

char *layout_stages(const struct layout *l)
{
	struct str s = { 0 };
	long layer = 0;

	for (long turn = 0; turn < layout_turns(l); turn++)
		for (long stage = 0; stage < l->pp; stage++) {
			long first = layer;

			while (layer < l->layers && layout_stage(l, layer) == stage && (layer == first || !turns_at(l, layer)))
				layer++;
			str_printf(&s, "%s%ld", stage ? "," : turn ? "/" : "", layer - first);
		}
	return str_detach(&s);
}

char *layout_text(const struct layout *l)
{
	const struct { const char *name; long n;
	} size[] = { { "tp", l->tp }, { "pp", l->pp },	 { "ep", l->ep },
		     { "etp", l->etp }, { "cp", l->cp }, { "dp", l->dp } };
	struct str s = { 0 };

	for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++) {
		if (size[i].n == 1)
			continue;
		str_printf(&s, "%s%s %ld", s.len ? ", " : "", size[i].name, size[i].n);
		if (i == 1) {
			char *stages = layout_stages(l);

			str_printf(&s, " (%s)", stages);
			free(stages);
		}
	}
	if (!s.len)
		str_printf(&s, "one rank");
	return str_detach(&s);
}

void layout_fit_dp(struct layout *l)
{
	const long size[] = { l->tp, l->cp, l->ep, l->etp };
	long experts, a, b;

	l->dp = 1;
	for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++)
		if (size[i] < 1 || size[i] > MOST_RANKS)
			return;
	experts = a = l->ep * l->etp;
	b = l->tp * l->cp;
	while (b) {
		long rest = a % b;

		a = b;
		b = rest;
	}
	l->dp = experts / a;
}
