#include "tools/rollout/rollout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64, CHUNK = 256 };

/* A number behind `key` in a file of lines, or -1. */
static long number_in(const char *path, const char *key)
{
	FILE *f = fopen(path, "r");
	char line[256];
	long v = -1;

	while (f && v < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), " %ld", &v) != 1)
			v = -1;
	if (f)
		fclose(f);
	return v;
}

/* What the machine or our control group still has. */
static long free_memory(void)
{
	long kib = number_in("/proc/meminfo", "MemAvailable:"), most = number_in("/sys/fs/cgroup/memory.max", "");
	long used = number_in("/sys/fs/cgroup/memory.current", ""), left = kib > 0 ? kib * 1024 : 1L << 30;

	if (most > 0 && used >= 0 && most - used < left)
		left = most > used ? most - used : 0;
	return left;
}

/* For this rank's cache and activations.  A device is its rank's alone, but its ops want memory too; a host's is for other work as well. */
static long room_for(const struct ops *k)
{
	long left = (long)k->room();

	return left ? left - left / 8 : free_memory() / 2 / start_ranks_here();
}

static long model_bytes(const struct model *m)
{
	size_t n = (size_t)(m->positions * m->table.config.head_dim) * sizeof(float);

	for (long i = 0; i < m->table.n; i++) {
		n += m->w[i].matrix.n ? m->w[i].matrix.fwd_bytes : 0;
		for (long e = 0; e < m->w[i].experts; e++)
			n += m->w[i].expert[e].fwd_bytes;
		if (m->w[i].value)
			n += (size_t)box_volume(m->box + i) * dtype_size(m->t);
	}
	return (long)n;
}

/* Bytes of a run with this many blocks, all but the model. */
static long run_bytes(const struct rollout *o, const struct gen_size *s, long blocks)
{
	return (long)cache_bytes(&o->m, blocks, s->slots + s->chunk, s->slots) +
	       (o->how.samples > 1 ? s->slots * o->cfg.vocab * (long)sizeof(float) : 0);
}

void memory_plan(struct rollout *o)
{
	const struct gen_prompt *p = o->mine;
	struct gen_size s = { o->batch ? o->batch : SLOTS, CHUNK, 0 };
	long n = o->mines, least = gen_least_blocks(p, n, &o->how), block = (long)cache_block_bytes(&o->m), most;
	long model = model_bytes(&o->m);

	most = common.memory_bytes ? common.memory_bytes - model : room_for(o->m.k);
	gen_fit(&s, p, n, &o->how);
	if (!n)
		s = (struct gen_size){ 1, 1, 1 };
	/* Fewer sequences at once rather than none. */
	while (run_bytes(o, &s, least) > most && (s.slots > 1 || s.chunk > 1)) {
		s.slots = s.slots > 1 ? s.slots / 2 : 1;
		s.chunk = s.chunk > 1 ? s.chunk / 2 : 1;
	}
	if (run_bytes(o, &s, least) > most)
		die(EX_UNAVAILABLE, "the longest prompt (%ld tokens) and its response want %ld bytes beside the model's %ld, and"
		    " %ld are there; give more with --memory, or ask for fewer tokens", o->prompts.longest,
		    run_bytes(o, &s, least), model, most > 0 ? most : 0);
	if (run_bytes(o, &s, s.blocks) > most)
		s.blocks = least + (most - run_bytes(o, &s, least)) / block;
	/* The ranks of a TP group run the same rows. */
	comm_broadcast(&o->mesh.tp, &s, sizeof(s), 0);
	o->size = s;
	log_info("%ld sequences at once, %ld rows of prompts a step, cache of %ld blocks, %ld bytes", s.slots, s.chunk, s.blocks,
		 s.blocks * block);
}

void memory_report(struct json_out *out, const struct rollout *o)
{
	json_key(out, "bytes");
	json_begin(out, '{');
	json_add_int(out, "model", model_bytes(&o->m));
	json_add_int(out, "cache", o->size.blocks * (long)cache_block_bytes(&o->m));
	json_add_int(out, "activations", run_bytes(o, &o->size, 0));
	json_end(out);
}
