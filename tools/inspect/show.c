#include "tools/inspect/inspect.h"

#include "formats/samples.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int order_sign;  /* 1: worst first, -1: best first, 0: as they come */

static int by_reward(const void *a, const void *b)
{
	const struct sample *x = *(const struct sample *const *)a, *y = *(const struct sample *const *)b;
	double p = x->has_reward && x->reward_valid ? x->reward : -INFINITY, q = y->has_reward && y->reward_valid ? y->reward : -INFINITY;

	if (order_sign && p != q)
		return (p < q ? -1 : 1) * order_sign;
	return x < y ? -1 : x > y;
}

/* Line breaks stay, other control bytes are spelt out. */
static void print_text(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)s[i] < 0x20 && s[i] != '\n') || s[i] == 0x7f)
			printf("\\x%02x", (unsigned char)s[i]);
		else
			putchar(s[i]);
	putchar('\n');
}

static void print_row(const struct sample *s)
{
	struct json_doc d;
	struct err e = ERR_INIT;

	if (!s->row || json_parse(&d, s->row, s->row_bytes, "row", 1, &e))
		return;
	for (size_t i = 0; json_is(&d.root, JSON_OBJECT) && i < d.root.n; i++)
		if (json_is(&d.root.member[i].value, JSON_STRING)) {
			printf("%s: ", d.root.member[i].key);
			print_text(d.root.member[i].value.text, d.root.member[i].value.n);
		}
	json_release(&d);
}

void show_samples(const char *dir, long n, bool best, bool worst)
{
	struct samples s = { 0 };
	struct err e = ERR_INIT;
	const struct sample **p;

	if (samples_read(&s, dir, &e))
		die_err(&e);
	p = xmalloc(((size_t)s.n + 1) * sizeof(*p));
	for (long i = 0; i < s.n; i++)
		p[i] = s.s + i;
	order_sign = best ? -1 : worst ? 1 : 0;
	qsort(p, (size_t)s.n, sizeof(*p), by_reward);
	for (long i = 0; i < s.n && i < n; i++) {
		printf("-- prompt %ld, sample %ld", p[i]->prompt_id, p[i]->sample_index);
		if (p[i]->has_reward && p[i]->reward_valid)
			printf(", reward %.9g", p[i]->reward);
		else if (p[i]->has_reward)
			printf(", unscored");
		if (finish_name(p[i]->finish_reason))
			printf(", %s after %ld tokens", finish_name(p[i]->finish_reason), p[i]->length - p[i]->prompt_length);
		putchar('\n');
		print_row(p[i]);
		printf("response: ");
		print_text(p[i]->text ? p[i]->text : "", p[i]->text_bytes);
	}
	free(p);
	samples_release(&s);
}

int diff_samples(const char *one, const char *two)
{
	struct samples a = { 0 }, b = { 0 };
	struct err e = ERR_INIT;
	long differ = 0;

	if (samples_read(&a, one, &e) || samples_read(&b, two, &e))
		die_err(&e);
	for (long i = 0; i < a.n && i < b.n; i++) {
		struct str x = { 0 }, y = { 0 };

		samples_put_jsonl(&x, &a, i);
		samples_put_jsonl(&y, &b, i);
		if (x.len != y.len || memcmp(x.s, y.s, x.len)) {
			if (differ++ < 10)
				printf("sample %ld (prompt %ld, %ld) differs\n", i, a.s[i].prompt_id, a.s[i].sample_index);
		}
		str_release(&x);
		str_release(&y);
	}
	differ += labs(a.n - b.n);
	printf("%ld samples differ; %ld and %ld in all\n", differ, a.n, b.n);
	samples_release(&a);
	samples_release(&b);
	return differ != 0;
}
