#include "libcommon/layout.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1 << 20 };

void layout_balance(struct layout *l, long pp)
{
	long each = l->layers / pp, larger = l->layers % pp, layer = 0;

	free(l->stage_of_layer);
	l->stage_of_layer = NULL;
	l->pp = pp;
	if (pp == 1)
		return;
	l->stage_of_layer = xcalloc((size_t)l->layers + 1, sizeof(long));
	for (long stage = 0; layer < l->layers; stage++)
		for (long k = 0; k < each + (stage < larger); k++)
			l->stage_of_layer[layer++] = stage;
}

/* "8,8,9,7" -> 8 at *count[0], ...; their number, or -1. */
static long parse_list(long **count, const char *text, long most)
{
	long n = 0, cap = 0;
	char *end;

	*count = NULL;
	for (;; text = end + 1) {
		long v = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;

		if (v < 0 || v > most || (*end && *end != ',') || n > 1 << 20) {
			free(*count);
			*count = NULL;
			return -1;
		}
		GROW(*count, n, cap);
		(*count)[n++] = v;
		if (!*end)
			return n;
	}
}

int layout_parse_stages(struct layout *l, const char *text, struct err *e)
{
	long *count, n = parse_list(&count, text, l->layers), sum = 0, layer = 0;

	for (long i = 0; i < n; i++)
		sum += count[i];
	if (n < 0 || sum != l->layers) {
		free(count);
		if (n < 0)
			return err_set(e, EX_USAGE,
				       "stages \"%.60s\": wanted the layers of each stage like 8,8,9,7, "
				       "together %ld",
				       text, l->layers);
		return err_set(e, EX_USAGE, "stages %.60s: together %ld layers, but the model has %ld",
			       text, sum, l->layers);
	}
	free(l->stage_of_layer);
	l->stage_of_layer = xcalloc((size_t)l->layers + 1, sizeof(long));
	l->pp = n;
	for (long stage = 0; stage < n; stage++)
		for (long k = 0; k < count[stage]; k++)
			l->stage_of_layer[layer++] = stage;
	free(count);
	return 0;
}

char *layout_stages(const struct layout *l)
{
	struct str s = { 0 };
	long layer = 0;

	for (long stage = 0; stage < l->pp; stage++) {
		long first = layer;

		while (layer < l->layers && layout_stage(l, layer) == stage)
			layer++;
		str_printf(&s, "%s%ld", stage ? "," : "", layer - first);
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
