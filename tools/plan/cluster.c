#include "tools/plan/plan.h"

#include "libcommon/opt.h"

#include <stdio.h>
#include <string.h>

/*
 * One GPU of each kind.  Peak: dense bfloat16 of the data sheet (SXM form).  Memory bandwidth of the H200: measured by a copy, 4.3 of
 * 4.8 TB/s; the others by the same ratio.  Links: NVLink in one direction, and one 400 Gb/s network port a GPU.
 * Efficiency: the H200's best measured product, 790 of 989 TFLOP/s, for the products themselves, and what a layer loses around them.
 */
static const struct cluster presets[] = {
	{ .name = "h100", .gpus_per_node = 8, .memory = 80e9, .peak = 989e12, .bandwidth = 3.0e12, .node_link = 450e9, .net_link = 50e9,
	  .latency = 5e-6, .storage = 10e9, .efficiency = 0.65 },
	{ .name = "h200", .gpus_per_node = 8, .memory = 141e9, .peak = 989e12, .bandwidth = 4.3e12, .node_link = 450e9, .net_link = 50e9,
	  .latency = 5e-6, .storage = 10e9, .efficiency = 0.65 },
	{ .name = "b200", .gpus_per_node = 8, .memory = 180e9, .peak = 2250e12, .bandwidth = 7.2e12, .node_link = 900e9, .net_link = 50e9,
	  .latency = 5e-6, .storage = 10e9, .efficiency = 0.65 },
};

int cluster_preset(struct cluster *c, const char *name, struct err *e)
{
	static const char *const names[] = { "h100", "h200", "b200", NULL };

	for (int i = 0; names[i]; i++)
		if (!strcmp(name, names[i])) {
			*c = presets[i];
			return 0;
		}
	return err_set(e, EX_USAGE, "--cluster %s: neither a file nor one of h100, h200, b200", name);
}

struct member { const char *key; double *to; };

static int members(struct member out[8], struct cluster *c)
{
	struct member m[] = { { "memory", &c->memory }, { "peak", &c->peak }, { "bandwidth", &c->bandwidth },
			      { "node_link", &c->node_link }, { "net_link", &c->net_link }, { "latency", &c->latency },
			      { "storage", &c->storage }, { "efficiency", &c->efficiency } };

	memcpy(out, m, sizeof(m));
	return 8;
}

/* {"2": RATE, "4": RATE, ...} */
static int read_sums(struct cluster *c, const struct json_doc *d, const struct json *v, struct err *e)
{
	if (!json_is(v, JSON_OBJECT))
		return err_set(e, EX_DATAERR, "%s:%d: sum_link: found %s, wanted an object", d->file, v->line, json_type_name(v));
	for (size_t i = 0; i < v->n; i++) {
		const struct json_member *m = v->member + i;
		int k = 1;
		char name[24];

		for (; k < CLUSTER_SUMS; k++) {
			snprintf(name, sizeof(name), "%ld", 1L << k);
			if (!strcmp(m->key, name))
				break;
		}
		if (k == CLUSTER_SUMS)
			return err_set(e, EX_DATAERR, "%s:%d: sum_link: found %.20s, wanted ranks as 2, 4, 8, ... %ld", d->file,
				       m->value.line, m->key, 1L << (CLUSTER_SUMS - 1));
		if (json_real(d, &m->value, "sum_link", &c->sum_link[k], e))
			return -1;
		if (!(c->sum_link[k] > 0))
			return err_set(e, EX_DATAERR, "%s:%d: sum_link: %s: found %g, wanted more than 0", d->file, m->value.line,
				       name, c->sum_link[k]);
	}
	return 0;
}

int cluster_read(struct cluster *c, const char *path, struct err *e)
{
	struct member m[8];
	struct json_doc d;
	int n = members(m, c), rc = 0;

	if (json_read(&d, path, 1 << 16, e))
		return -1;
	c->name = "as given";
	if (!json_is(&d.root, JSON_OBJECT))
		rc = err_set(e, EX_DATAERR, "%s: found %s, wanted an object as plan --measure prints it", path, json_type_name(&d.root));
	for (size_t i = 0; i < d.root.n && !rc; i++) {
		const char *key = d.root.member[i].key;
		const struct json *v = &d.root.member[i].value;
		int k = 0;

		while (k < n && strcmp(m[k].key, key))
			k++;
		if (k < n)
			rc = json_real(&d, v, key, m[k].to, e);
		else if (!strcmp(key, "gpus_per_node"))
			rc = json_int(&d, v, key, &c->gpus_per_node, e);
		else if (!strcmp(key, "sum_link"))
			rc = read_sums(c, &d, v, e);
		else if (strcmp(key, "name"))
			rc = err_set(e, EX_DATAERR, "%s:%d: %s: no such member of a cluster", path, v->line, key);
		if (!rc && k < n && !(*m[k].to > 0))
			rc = err_set(e, EX_DATAERR, "%s:%d: %s: found %g, wanted more than 0", path, v->line, key, *m[k].to);
	}
	if (!rc && c->gpus_per_node < 1)
		rc = err_set(e, EX_DATAERR, "%s: gpus_per_node: found %ld, wanted at least 1", path, c->gpus_per_node);
	json_release(&d);
	return rc;
}

void cluster_put(struct json_out *o, const struct cluster *c)
{
	struct cluster copy = *c;
	struct member m[8];
	int n = members(m, &copy);

	json_begin(o, '{');
	json_add_str(o, "name", c->name);
	json_add_int(o, "gpus_per_node", c->gpus_per_node);
	for (int i = 0; i < n; i++)
		json_add_real(o, m[i].key, *m[i].to);
	json_key(o, "sum_link");
	json_begin(o, '{');
	for (int k = 1; k < CLUSTER_SUMS; k++) {
		char name[24];

		snprintf(name, sizeof(name), "%ld", 1L << k);
		if (c->sum_link[k] > 0)
			json_add_real(o, name, c->sum_link[k]);
	}
	json_end(o);
	json_end(o);
}
