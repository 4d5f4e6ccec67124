/*
 * recompute CKPT SAMPLES float32|bfloat16 [replay]: the log-probabilities of samples computed again under a checkpoint, whatever it
 * is, with replay through the recorded experts, and how many of them differ from the recorded ones in any bit.  recompute_split.c is the same with smaller splits of keys.
 */
#include "formats/samples.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tools/shared/packed.h"
#include "tools/shared/replay.h"
#include "tools/shared/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct count { long tokens, different, longest; };

static void one(struct count *out, struct model *m, const struct samples *set, const struct sample *s, bool replay, const struct recipe *r)
{
	struct sequence q = sample_sequence(set, s, replay, &m->table.config, "samples");
	long n = s->length - s->prompt_length;
	float *lp = xmalloc((size_t)n * sizeof(float) + 1);

	packed_logprobs(m, &lp, NULL, &q, 1, r, s->temperature > 0 ? (float)s->temperature : 1, "again");
	for (long t = 0; t < n; t++) {
		if (s->loss_mask && !s->loss_mask[t])
			continue;
		out->tokens++;
		out->different += memcmp(lp + t, s->logprobs + t, sizeof(float)) != 0;
	}
	out->longest = s->length > out->longest ? s->length : out->longest;
	free(lp);
}

int main(int argc, char **argv)
{
	struct checkpoint c;
	struct samples set = { 0 };
	struct recipe *r;
	struct model m;
	struct count n = { 0 };
	struct err e = ERR_INIT;
	const struct ops *k;

	if (argc != 4 && argc != 5)
		die(EX_USAGE, "usage: recompute CKPT SAMPLES float32|bfloat16 [replay]");
	pool_start(0);
	k = ops_find("cpu", NULL, &e);
	if (!k || recipe_load(&r, NULL, NULL, 0, NULL, 0, &e) || samples_read_any(&set, argv[2], &e))
		die_err(&e);
	load_checkpoint(&c, argv[1]);
	load_model(&m, &c, k, NULL, strcmp(argv[3], "float32") ? DTYPE_BF16 : DTYPE_F32, 0, 0);
	for (long i = 0; i < set.n; i++)
		one(&n, &m, &set, set.s + i, argc == 5, r);
	printf("{\"tokens\": %ld, \"different\": %ld, \"longest\": %ld}\n", n.tokens, n.different, n.longest);
	return 0;
}
