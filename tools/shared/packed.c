#include "tools/shared/packed.h"

#include "kernels/model/pipeline.h"
#include "libcommon/opt.h"
#include "libcommon/progress.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

static long longest(const struct sequence *q, long n)
{
	long most = 1;

	for (long i = 0; i < n; i++)
		if (q[i].n > most)
			most = q[i].n;
	return most;
}

void packed_plan(struct bins *b, const struct sequence *q, long n, const struct recipe *r, enum packed_for what)
{
	bool train = what == PACKED_TRAIN, on = recipe_bool(r, "policy.sequence_packing.enabled");
	long capacity, *length = xmalloc((size_t)n * sizeof(long)), most = longest(q, n);
	int how = on ? packing_find(recipe_str(r, "policy.sequence_packing.algorithm")) : PACK_CONCATENATIVE;
	struct err e = ERR_INIT;

	if (how < 0)
		die(EX_CONFIG, "%s: policy.sequence_packing.algorithm: found %s, wanted concatenative, first_fit_decreasing or"
		    " modified_first_fit_decreasing", recipe_where(r, "policy.sequence_packing.algorithm"),
		    recipe_str(r, "policy.sequence_packing.algorithm"));
	if (on)
		capacity = recipe_int(r, train ? "policy.sequence_packing.train_mb_tokens"
					       : "policy.sequence_packing.logprob_mb_tokens");
	else
		capacity = most * recipe_int(r, train ? "policy.train_micro_batch_size" : "policy.logprob_batch_size");
	if (capacity < most)
		capacity = most;
	for (long i = 0; i < n; i++)
		length[i] = q[i].n;
	if (pack(b, length, n, capacity, (enum packing)how, &e))
		die_err(&e);
	free(length);
}

long packed_rows(const struct bins *b, const struct sequence *q)
{
	long most = 1;

	for (long k = 0; k < b->n; k++) {
		long rows = 0;

		for (long i = b->first[k]; i < b->first[k + 1]; i++)
			rows += q[b->item[i]].n;
		if (rows > most)
			most = rows;
	}
	return most;
}

static void targets(int *target, const struct sequence *s)
{
	for (long r = 0; r < s->n; r++) {
		long next = r + 1 - s->prompt;

		target[r] = r + 1 < s->n && next >= 0 && (!s->mask || s->mask[next]) ? s->ids[r + 1] : -1;
	}
}

/* Rows of sequences without experts of their own get -1, which leaves the choice to the routers. */
static const int *pack_experts(struct packed *p, const struct sequence *q, const long *item, long nseq)
{
	long per = 0, n;

	for (long i = 0; i < nseq; i++)
		per = q[item[i]].experts ? q[item[i]].per : per;
	n = p->cu[nseq] * per;
	if (!per)
		return NULL;
	if (n > p->cap_experts)
		p->experts = xrealloc_array(p->experts, (size_t)(p->cap_experts = n), sizeof(int));
	for (long i = 0; i < nseq; i++) {
		const struct sequence *s = q + item[i];
		size_t bytes = (size_t)(s->n * per) * sizeof(int);

		if (s->experts)
			memcpy(p->experts + p->cu[i] * per, s->experts, bytes);
		else
			memset(p->experts + p->cu[i] * per, -1, bytes);
	}
	return p->experts;
}

void packed_batch(struct packed *p, const struct sequence *q, const struct bins *b, long bin)
{
	long nseq = b->first[bin + 1] - b->first[bin], rows = 0;

	for (long i = 0; i < nseq; i++)
		rows += q[b->item[b->first[bin] + i]].n;
	if (rows > p->cap_rows || nseq > p->cap_seq) {
		p->cap_rows = rows > p->cap_rows ? rows : p->cap_rows;
		p->cap_seq = nseq > p->cap_seq ? nseq : p->cap_seq;
		p->ids = xrealloc_array(p->ids, (size_t)p->cap_rows, sizeof(int));
		p->target = xrealloc_array(p->target, (size_t)p->cap_rows, sizeof(int));
		p->cu = xrealloc_array(p->cu, (size_t)p->cap_seq + 1, sizeof(long));
	}
	p->cu[0] = 0;
	for (long i = 0; i < nseq; i++) {
		const struct sequence *s = q + b->item[b->first[bin] + i];

		memcpy(p->ids + p->cu[i], s->ids, (size_t)s->n * sizeof(int));
		targets(p->target + p->cu[i], s);
		p->cu[i + 1] = p->cu[i] + s->n;
	}
	p->batch = (struct batch){ .rows = rows, .ids = p->ids, .nseq = nseq, .cu = p->cu,
				   .experts = pack_experts(p, q, b->item + b->first[bin], nseq) };
}

void packed_release(struct packed *p)
{
	free(p->ids);
	free(p->target);
	free(p->experts);
	free(p->cu);
	memset(p, 0, sizeof(*p));
}

long model_memory(const struct param_table *t, const struct layout *l, const struct place *at, enum dtype type, bool training)
{
	long held = 0, own = 0, replicas = l->dp * l->cp, e = (long)dtype_size(type);

	for (long i = 0; i < t->n; i++) {
		struct box b = param_box(t->p + i, l, at);

		if (param_stage(t->p + i, l) == at->pp || (t->p[i].kind == PARAM_EMBED && t->config.tied && at->pp == l->pp - 1))
			held += box_volume(&b);
	}
	if (!training)
		return held * e;
	for (int expert = 0; expert < 2; expert++) {
		struct shard_arena a;

		shard_arena_init(&a, t, l, at, expert);
		own += a.n;
		shard_arena_release(&a);
	}
	/* The weights are there three times: as they are, and ready for products of both directions. */
	return held * (3 * e + 4) + own * ((replicas > 1 ? 4 : 0) + (type == DTYPE_F32 ? 8 : 12));
}

void check_memory(const struct model *m, long rows, long n, enum packed_for what, const struct recipe *r, enum recompute recompute)
{
	static const char *const key[2][2] = { { "train_micro_batch_size", "logprob_batch_size" },
					       { "sequence_packing.train_mb_tokens", "sequence_packing.logprob_mb_tokens" } };
	bool train = what == PACKED_TRAIN;
	long own = model_memory(&m->table, &m->mesh->layout, &m->mesh->at, m->t, m->flags & MODEL_TRAIN);
	long acts = (long)pipeline_bytes(m, rows, train, recompute, n);

	if (common.memory_bytes && own + acts > common.memory_bytes)
		die(EX_UNAVAILABLE, "%ld tokens at once want %ld bytes beside the model's %ld, --memory gives %ld; give more, make policy.%s "
		    "smaller or the sequences shorter%s", rows, acts, own, common.memory_bytes,
		    key[recipe_bool(r, "policy.sequence_packing.enabled")][what == PACKED_LOGPROB],
		    train && !recompute ? ", or set policy.dtensor_cfg.activation_checkpointing" : "");
}

/* The first token of a sequence without prompt has nothing before it. */
static void hand_out(float *out, const float *rows, const struct sequence *s)
{
	for (long t = 0; t < s->n - s->prompt; t++)
		out[t] = s->prompt + t > 0 ? rows[s->prompt + t - 1] : __builtin_nanf("");
}

/* The numbers of the bins of one data-parallel rank, one after another: into `flat`, or out of it; NULL: only their number. */
static size_t carry(float *flat, float *const *x, const struct sequence *q, const struct bins *b, long rank, long ranks, bool out)
{
	size_t at = 0;

	for (long k = rank; k < b->n; k += ranks) {
		for (long i = b->first[k]; i < b->first[k + 1]; i++) {
			const struct sequence *s = q + b->item[i];
			float *own = x[b->item[i]];
			size_t n = own ? (size_t)(s->n - s->prompt) : 0;

			if (n && flat)
				memcpy(out ? own : flat + at, out ? flat + at : own, n * sizeof(float));
			at += n;
		}
	}
	return at;
}

/* What each data-parallel rank has computed goes to all; x[i] NULL: not wanted. */
static void share(float *const *x, const struct sequence *q, const struct bins *b, struct comm *dp)
{
	size_t *bytes = xcalloc((size_t)dp->size, sizeof(*bytes)), all = 0;
	float *mine, *got, *at;

	for (int r = 0; r < dp->size; r++) {
		bytes[r] = carry(NULL, x, q, b, r, dp->size, false) * sizeof(float);
		all += bytes[r];
	}
	mine = xmalloc(bytes[dp->rank] + 1);
	at = got = xmalloc(all + 1);
	carry(mine, x, q, b, dp->rank, dp->size, false);
	comm_gather_v(dp, got, mine, bytes);
	for (int r = 0; r < dp->size; r++)
		at += carry(at, x, q, b, r, dp->size, true);
	free(bytes);
	free(mine);
	free(got);
}

struct forward {                /* bins through a model that only runs forward */
	struct model *m;
	struct pass *p;
	struct bins bins;
	struct packed b;
	float *row, *ent;       /* [rows]; ent NULL: not wanted */
	float temperature;
};

/* Where experts lie over data-parallel ranks, a rank without bin takes part with no rows. */
static void run_empty(struct forward *f)
{
	static const long nothing[1];

	pass_forward(f->p, &(struct batch){ .cu = nothing });
	pass_logprobs(f->p, f->row, NULL, NULL, f->temperature);
}

static void run_bin(struct forward *f, float *const *lp, float *const *entropy, const struct sequence *q, long k)
{
	packed_batch(&f->b, q, &f->bins, k);
	pass_forward(f->p, &f->b.batch);
	pass_logprobs(f->p, f->row, f->ent, f->b.target, f->temperature);
	for (long i = 0; i < f->b.batch.nseq; i++) {
		long s = f->bins.item[f->bins.first[k] + i];

		hand_out(lp[s], f->row + f->b.cu[i], q + s);
		if (entropy && entropy[s])
			hand_out(entropy[s], f->ent + f->b.cu[i], q + s);
	}
}

void packed_logprobs(struct model *m, float *const *lp, float *const *entropy, const struct sequence *q, long n,
		     const struct recipe *r, float temperature, const char *what)
{
	struct forward f = { .m = m, .temperature = temperature };
	struct progress show = { 0 };
	long rows, dp = m->mesh->layout.dp;

	packed_plan(&f.bins, q, n, r, PACKED_LOGPROB);
	rows = packed_rows(&f.bins, q);
	check_memory(m, rows, 1, PACKED_LOGPROB, r, false);
	f.p = pass_new(m, rows, false, false);
	f.row = xmalloc((size_t)rows * sizeof(float));
	f.ent = entropy ? xmalloc((size_t)rows * sizeof(float)) : NULL;
	progress_start(&show, what, (double)f.bins.n, "batches");
	for (long k = m->mesh->at.dp; k - m->mesh->at.dp < f.bins.n; k += dp) {
		if (k < f.bins.n)
			run_bin(&f, lp, entropy, q, k);
		else if (m->mesh->ep.size * m->mesh->etp.size > 1)
			run_empty(&f);
		progress_add(&show, (double)dp);
	}
	progress_end(&show);
	if (dp > 1)
		share(lp, q, &f.bins, &m->mesh->dp);
	if (dp > 1 && entropy)
		share(entropy, q, &f.bins, &m->mesh->dp);
	free(f.row);
	free(f.ent);
	pass_free(f.p);
	packed_release(&f.b);
	bins_release(&f.bins);
}
