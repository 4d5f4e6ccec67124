#include "tools/inspect/inspect.h"

#include "formats/tokenizer.h"
#include "libcommon/file.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_scored(const struct sample *s)
{
	return s->has_reward && s->reward_valid && !isnan(s->reward);
}

/* Samples without a reward are neither best nor worst: they come last. */
static int compare(const struct sample *x, const struct sample *y, int sign)
{
	if (is_scored(x) != is_scored(y))
		return is_scored(x) ? -1 : 1;
	if (is_scored(x) && x->reward != y->reward)
		return (x->reward < y->reward ? -1 : 1) * sign;
	return x < y ? -1 : x > y;
}

static int worst_first(const void *a, const void *b)
{
	return compare(*(const struct sample *const *)a, *(const struct sample *const *)b, 1);
}

static int best_first(const void *a, const void *b)
{
	return compare(*(const struct sample *const *)a, *(const struct sample *const *)b, -1);
}

static struct tokenizer *tokenizer_of(const char *dir, struct digest digest)
{
	struct tokenizer *t = NULL;
	struct checkpoint c;
	struct blob b = { 0 };
	struct err e = ERR_INIT;

	if (checkpoint_open(&c, dir, &e))
		return NULL;
	if (c.has_tokenizer && digest_equal(c.tokenizer_digest, digest) && !checkpoint_read_tokenizer(&b, &c, &e))
		for (int i = 0; i < b.n; i++)
			if (!strcmp(b.part[i].name, "tokenizer") && tokenizer_unpack(&t, b.part[i].data, b.part[i].bytes, dir, &e))
				t = NULL;
	blob_release(&b);
	checkpoint_close(&c);
	return t;
}

/* Of the checkpoint that sampled, while it is still there; scored samples name it through the samples that they were made of. */
static struct tokenizer *find_tokenizer(const char *dir, const struct samples *s)
{
	struct json_doc d;
	struct err e = ERR_INIT;
	struct tokenizer *t = NULL;
	char *found, *set;

	if (!file_is_dir(dir) || manifest_read(&d, dir, "samples", &e))
		return NULL;
	found = history_find(dir, json_path(&d.root, "history.entry"), "checkpoint");
	if (!found)
		found = history_find(dir, json_path(&d.root, "history.entry"), "policy");
	set = history_find(dir, json_path(&d.root, "history.entry"), "samples");
	json_release(&d);
	if (!found && set && !manifest_read(&d, set, "samples", &e)) {
		found = history_find(set, json_path(&d.root, "history.entry"), "checkpoint");
		json_release(&d);
	}
	if (found && s->n)
		t = tokenizer_of(found, s->s[0].tokenizer_digest);
	free(found);
	free(set);
	return t;
}

static void print_part(const char *what, const char *s, size_t n)
{
	printf("%s: ", what);
	print_safe(s, n);
	if (!n || s[n - 1] != '\n')
		putchar('\n');
}

/* The prompt as the model saw it, else the row that it was made of. */
static void print_prompt(const struct sample *s, const struct tokenizer *t)
{
	struct str text = { 0 };

	if (t && !tokenizer_decode(t, s->token_ids, s->prompt_length, false, &text) && text.len)
		print_part("prompt", text.s, text.len);
	else if (s->row)
		print_part("row", s->row, s->row_bytes);
	else
		printf("prompt: %ld tokens\n", s->prompt_length);
	str_release(&text);
}

static void print_rewards(const struct samples *set, const struct sample *s)
{
	char buf[32];

	if (is_scored(s))
		printf(", reward %s", real_repr(buf, s->reward));
	else if (s->has_reward)
		printf(", unscored");
	if (!s->rewards || set->reward_names < 2)
		return;
	printf(" (");
	for (int k = 0; k < set->reward_names; k++) {
		printf("%s", k ? ", " : "");
		print_safe(set->reward_name[k], strlen(set->reward_name[k]));
		printf(" %s", isnan(s->rewards[k]) ? "unscored" : real_repr(buf, s->rewards[k]));
	}
	putchar(')');
}

static void print_sample(const struct samples *set, const struct sample *s, const struct tokenizer *t)
{
	const char *finish = finish_name(s->finish_reason);

	printf("-- prompt %ld, visit %ld, sample %ld", s->prompt_id, s->visit, s->sample_index);
	print_rewards(set, s);
	printf(", %s after %ld tokens%s\n", finish ? finish : "ended", s->length - s->prompt_length, s->truncated ? ", truncated" : "");
	print_prompt(s, t);
	if (s->text)
		print_part("response", s->text, s->text_bytes);
	if (s->extracted)
		print_part("extracted", s->extracted, s->extracted_bytes);
	if (s->reason && s->reason_bytes)
		print_part("reason", s->reason, s->reason_bytes);
}

void show_samples(const char *path, long n, enum show_order order)
{
	struct samples s = { 0 };
	struct tokenizer *t;
	struct err e = ERR_INIT;
	const struct sample **p;

	if (samples_read_any(&s, path, &e))
		die_err(&e);
	t = find_tokenizer(path, &s);
	p = xmalloc(((size_t)s.n + 1) * sizeof(*p));
	for (long i = 0; i < s.n; i++)
		p[i] = s.s + i;
	if (order != SHOW_FIRST)
		qsort(p, (size_t)s.n, sizeof(*p), order == SHOW_BEST ? best_first : worst_first);
	for (long i = 0; i < s.n && i < n && !ferror(stdout); i++)
		print_sample(&s, p[i], t);
	free(p);
	tokenizer_free(t);
	samples_release(&s);
}
