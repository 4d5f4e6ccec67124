#include "libcommon/param.h"

#include "tests/lib/tap.h"

/* Every dimension different, so that none is taken for another. */
static struct model_config config(void)
{
	return (struct model_config){ .model_type = "llama",
				      .vocab = 101,
				      .hidden = 10,
				      .intermediate = 14,
				      .layers = 3,
				      .heads = 6,
				      .kv_heads = 3,
				      .head_dim = 4 };
}

static void one(const struct param_table *t, const char *name, const char *shape, int axis,
		long unit, enum grad_state grad, long chunks)
{
	const struct param *p = param_find(t, name);
	char text[160];

	ok(p && !strcmp(p->name, name) && p->tp_axis == axis && p->tp_unit == unit &&
		   p->tp_grad == grad && p->chunks == chunks && p->role == ROLE_PARAM &&
		   p->decay == (p->rank == 2),
	   "%s", name);
	is_str(p ? shape_text(text, p->shape, p->rank) : NULL, shape, "%s is %s", name, shape);
}

static long total(const struct param_table *t)
{
	long n = 0;

	for (long i = 0; i < t->n; i++) {
		struct box b = box_whole(t->p[i].shape, t->p[i].rank);

		n += box_volume(&b);
	}
	return n;
}

static void dense(void)
{
	struct model_config c = config();
	struct param_table t;

	param_table_init(&t, &c);
	ok(t.n == 1 + 3 * 9 + 2, "embedding, nine a layer, norm, head");
	one(&t, "model.embed_tokens.weight", "[101, 10]", 0, 1024, GRAD_SHARDED, 1);
	one(&t, "model.layers.0.input_layernorm.weight", "[10]", -1, 1, GRAD_SAME, 1);
	one(&t, "model.layers.1.self_attn.q_proj.weight", "[24, 10]", 0, 8, GRAD_SHARDED, 1);
	one(&t, "model.layers.2.self_attn.k_proj.weight", "[12, 10]", 0, 4, GRAD_SHARDED, 1);
	one(&t, "model.layers.2.self_attn.v_proj.weight", "[12, 10]", 0, 4, GRAD_SHARDED, 1);
	one(&t, "model.layers.0.self_attn.o_proj.weight", "[10, 24]", 1, 8, GRAD_SHARDED, 3);
	one(&t, "model.layers.0.post_attention_layernorm.weight", "[10]", -1, 1, GRAD_SAME, 1);
	one(&t, "model.layers.0.mlp.gate_proj.weight", "[14, 10]", 0, 2, GRAD_SHARDED, 1);
	one(&t, "model.layers.0.mlp.up_proj.weight", "[14, 10]", 0, 2, GRAD_SHARDED, 1);
	one(&t, "model.layers.0.mlp.down_proj.weight", "[10, 14]", 1, 2, GRAD_SHARDED, 7);
	one(&t, "model.norm.weight", "[10]", -1, 1, GRAD_SAME, 1);
	one(&t, "lm_head.weight", "[101, 10]", 0, 1024, GRAD_SHARDED, 1);
	ok(!param_find(&t, "model.layers.3.mlp.up_proj.weight") &&
		   !param_find(&t, "model.layers.0.self_attn.q_proj.bias") &&
		   !param_find(&t, "model.layers.00.mlp.up_proj.weight") &&
		   !param_find(&t, "score.weight") && !param_find(&t, "") &&
		   !param_find(&t, "model.layers.0") &&
		   !param_find(&t, "model.layers.99999999999999999999.mlp.up_proj.weight"),
	   "no others");
	ok(t.p[0].kind == PARAM_EMBED && t.p[1].layer == 0 && t.p[t.n - 3].layer == 2 &&
		   t.p[t.n - 2].kind == PARAM_FINAL_NORM && t.p[t.n - 1].kind == PARAM_LM_HEAD &&
		   t.p[t.n - 1].layer == -1,
	   "in order");
	ok(total(&t) == model_config_parameters(&c), "as many elements as "
						     "model_config_parameters() says");
	param_table_release(&t);
}

static void variants(void)
{
	struct model_config c = config();
	struct param_table t;

	c.tied = c.qkv_bias = c.o_bias = c.mlp_bias = c.qk_norm = true;
	c.kv_heads = 16;
	c.heads = 32;
	c.intermediate = 24;
	param_table_init(&t, &c);
	ok(t.n == 1 + 3 * 18 + 1 && !param_find(&t, "lm_head.weight"), "a tied head is no "
								       "parameter");
	one(&t, "model.layers.1.self_attn.q_proj.bias", "[128]", 0, 8, GRAD_SHARDED, 1);
	one(&t, "model.layers.1.self_attn.k_proj.bias", "[64]", 0, 4, GRAD_SHARDED, 1);
	one(&t, "model.layers.1.self_attn.v_proj.bias", "[64]", 0, 4, GRAD_SHARDED, 1);
	one(&t, "model.layers.1.self_attn.o_proj.bias", "[10]", -1, 1, GRAD_SAME, 1);
	one(&t, "model.layers.1.self_attn.q_norm.weight", "[4]", -1, 1, GRAD_PARTIAL, 1);
	one(&t, "model.layers.1.self_attn.k_norm.weight", "[4]", -1, 1, GRAD_PARTIAL, 1);
	one(&t, "model.layers.1.self_attn.o_proj.weight", "[10, 128]", 1, 8, GRAD_SHARDED, 8);
	one(&t, "model.layers.2.mlp.down_proj.weight", "[10, 24]", 1, 3, GRAD_SHARDED, 8);
	one(&t, "model.layers.2.mlp.gate_proj.bias", "[24]", 0, 3, GRAD_SHARDED, 1);
	one(&t, "model.layers.2.mlp.up_proj.bias", "[24]", 0, 3, GRAD_SHARDED, 1);
	one(&t, "model.layers.2.mlp.down_proj.bias", "[10]", -1, 1, GRAD_SAME, 1);
	ok(total(&t) == model_config_parameters(&c), "as many elements as "
						     "model_config_parameters() says");
	param_table_release(&t);

	c.head = HEAD_SCALAR;
	c.tied = false;
	param_table_init(&t, &c);
	one(&t, "score.weight", "[1, 10]", -1, 1, GRAD_SAME, 1);
	ok(!param_find(&t, "lm_head.weight") && total(&t) == model_config_parameters(&c),
	   "a scalar head instead of the vocabulary's");
	param_table_release(&t);
	c.head = HEAD_NONE;
	param_table_init(&t, &c);
	ok(t.p[t.n - 1].kind == PARAM_FINAL_NORM && total(&t) == model_config_parameters(&c), "no "
											      "hea"
											      "d");
	param_table_release(&t);
}

/* For every number of ranks the boxes tile each tensor that is split, on whole units; report B24:
 * nothing is padded. */
static void boxes(void)
{
	struct model_config c = config();
	struct layout l;
	struct param_table t;
	struct err e = ERR_INIT;
	int bad = 0, cut = 0, uneven = 0;

	c.qkv_bias = true;
	layout_init(&l, c.layers);
	param_table_init(&t, &c);
	for (l.tp = 1; l.tp <= 9; l.tp++)
		for (long i = 0; i < t.n; i++) {
			const struct param *p = &t.p[i];
			struct box b[9], whole = box_whole(p->shape, p->rank);
			long least = 1L << 40, most = 0;

			for (int r = 0; r < l.tp; r++) {
				b[r] = param_box(p, &l, &(struct place){ .tp = r });
				if (p->tp_axis < 0 || l.tp == 1) {
					bad += box_volume(&b[r]) != box_volume(&whole);
					continue;
				}
				long end = b[r].start[p->tp_axis] + b[r].extent[p->tp_axis];
				bool few = p->shape[p->tp_axis] / p->tp_unit < l.tp;
				long unit = few && p->tp_fine ? p->tp_fine : p->tp_unit;
				long units = (b[r].extent[p->tp_axis] + unit - 1) / unit;
				cut += (end % unit && end != p->shape[p->tp_axis]) ||
				       (b[r].start[p->tp_axis] % unit && b[r].extent[p->tp_axis]);
				least = units < least ? units : least;
				most = units > most ? units : most;
			}
			if (p->tp_axis >= 0) {
				int distinct = 0;

				for (int r = 0; r < l.tp; r++) {
					long which, n = param_copies(&which, p, &l, &(struct place){ .tp = r });

					bad += which >= n || (which && memcmp(&b[r], &b[r - 1], sizeof(*b)));
					if (!which)
						b[distinct++] = b[r];
				}
				bad += box_tiling(b, distinct, p->shape, p->rank, p->name, &e) != 0;
				uneven += l.tp > 1 && most - least > 1;
			}
		}
	ok(!bad, "boxes of 1 to 9 ranks tile each tensor %s", e.msg);
	ok(!cut, "no unit is cut");
	ok(!uneven, "ranks differ by one unit at most");

	l.tp = 2;
	struct box q = param_box(param_find(&t, "model.layers.0.self_attn.q_proj.weight"), &l, &(struct place){ 0 });
	struct box k = param_box(param_find(&t, "model.layers.0.self_attn.k_proj.weight"), &l, &(struct place){ 0 });
	ok(q.extent[0] == 8 && k.extent[0] == 4, "q and k are cut at the same kv head");
	param_table_release(&t);
	layout_release(&l);
}

/* The numbers of the rows of a matrix that a rank has, in words: "1,2". */
static char *rows(const struct param_table *t, const char *name, long first, int tp)
{
	struct layout l;
	struct str s = { 0 };

	layout_init(&l, 1);
	l.tp = 2;
	struct box b = param_box(param_find(t, name), &l, &(struct place){ .tp = tp });
	for (long i = 0; i < b.extent[0]; i++)
		str_printf(&s, "%s%ld", i ? "," : "", first + b.start[0] + i);
	layout_release(&l);
	return str_detach(&s);
}

/*
 * Reports B27 and B29: 4 heads of queries, 2 of keys, one row each, numbered q 1..4, k 5, 6, v 7, 8: a rank has the keys of its queries.
 * A gate and an up of 4 rows, 1..4 and 5..8: a rank has the same half of both.
 */
static void reports(void)
{
	static const struct { const char *name; long first; const char *want[2]; } list[] = {
		{ "model.layers.0.self_attn.q_proj.weight", 1, { "1,2", "3,4" } },
		{ "model.layers.0.self_attn.k_proj.weight", 5, { "5", "6" } },
		{ "model.layers.0.self_attn.v_proj.weight", 7, { "7", "8" } },
		{ "model.layers.0.mlp.gate_proj.weight", 1, { "1,2", "3,4" } },
		{ "model.layers.0.mlp.up_proj.weight", 5, { "5,6", "7,8" } },
	};
	struct model_config c = { .model_type = "llama", .vocab = 9, .hidden = 1, .intermediate = 4, .layers = 1, .heads = 4,
				  .kv_heads = 2, .head_dim = 1 };
	struct param_table t;

	param_table_init(&t, &c);
	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
		for (int tp = 0; tp < 2; tp++) {
			char *have = rows(&t, list[i].name, list[i].first, tp);

			is_str(have, list[i].want[tp], "%s: %s of rank %d", i < 3 ? "B27" : "B29", list[i].name, tp);
			free(have);
		}
	param_table_release(&t);
}

/* Names and shapes are those of the models that transformers builds; from record_config.py. */
static void one_of_transformers(const struct json_doc *d, const struct json *v, int i)
{
	struct json_doc alone = { .root = *json_get(v, "config"), .file = d->file };
	const struct json *names = json_get(v, "names");
	struct model_config c;
	struct param_table t;
	struct err e = ERR_INIT;
	int bad = 0;

	if (model_config_from_json(&c, &alone, &e)) {
		ok(0, "config %d: %s", i, e.msg);
		return;
	}
	param_table_init(&t, &c);
	ok(t.n == (long)names->n, "config %d, %s: %zu parameters", i, c.model_type, names->n);
	for (size_t k = 0; k < names->n; k++) {
		const struct param *p = param_find(&t, names->member[k].key);
		const struct json *shape = &names->member[k].value;
		long extent;

		bad += !p || p->rank != (int)shape->n;
		for (int j = 0; p && j < p->rank && j < (int)shape->n; j++)
			bad += json_int(d, &shape->item[j], "shape", &extent, &e) ||
			       extent != p->shape[j];
	}
	ok(!bad, "config %d: by the same names, of the same shapes", i);
	param_table_release(&t);
}

static void transformers(void)
{
	char path[4096];
	const char *root = getenv("CAIRN_ROOT");
	struct json_doc d;
	struct err e = ERR_INIT;

	snprintf(path, sizeof(path), "%s/tests/data/model_config.json", root ? root : ".");
	if (json_read(&d, path, 0, &e)) {
		ok(0, "%s", e.msg);
		return;
	}
	for (size_t i = 0; i < d.root.n; i++)
		one_of_transformers(&d, &d.root.item[i], (int)i);
	json_release(&d);
}

/* A model of four layers, of which 1 has experts (3 would, but is named) and a shared one. */
static void experts(void)
{
	struct model_config c = config();
	struct param_table t;
	const struct param *down;
	struct layout l = { .tp = 1, .pp = 1, .ep = 2, .etp = 7, .dp = 1 };
	struct place at = { .ep = 1, .etp = 3 };
	struct box b;

	strcpy(c.model_type, "qwen2_moe");
	c.layers = 4;
	c.qkv_bias = true;
	c.moe = (struct moe_config){ .experts = 5, .experts_per_token = 2, .intermediate = 21, .shared_intermediate = 9, .step = 2,
				     .mlp_only = { 1 << 3 } };
	ok(model_config_moe_layers(&c) == 1 && model_config_is_moe(&c, 1), "one layer of four has experts");
	param_table_init(&t, &c);
	ok(t.n == 1 + 3 * 12 + 17 + 2, "layers of 12, one of 17");
	one(&t, "model.layers.1.mlp.gate.weight", "[5, 10]", -1, 1, GRAD_SAME, 1);
	one(&t, "model.layers.1.mlp.shared_expert.gate_proj.weight", "[9, 10]", 0, 9 / 3, GRAD_SHARDED, 1);
	one(&t, "model.layers.1.mlp.shared_expert.down_proj.weight", "[10, 9]", 1, 9 / 3, GRAD_SHARDED, 3);
	one(&t, "model.layers.1.mlp.shared_expert_gate.weight", "[1, 10]", -1, 1, GRAD_SAME, 1);
	one(&t, "model.layers.0.mlp.down_proj.weight", "[10, 14]", 1, 2, GRAD_SHARDED, 7);
	one(&t, "model.layers.3.mlp.down_proj.weight", "[10, 14]", 1, 2, GRAD_SHARDED, 7);
	down = param_find(&t, "model.layers.1.mlp.experts.down_proj.weight");
	ok(down && down->expert && down->decay && down->rank == 3 && down->tp_axis == 2 && down->tp_unit == 3 && down->chunks == 7 &&
	   down->shape[0] == 5 && down->shape[1] == 10 && down->shape[2] == 21, "down_proj of all experts is [5, 10, 21]");
	b = param_box(down, &l, &at);
	ok(b.start[0] == 2 && b.extent[0] == 3 && b.start[1] == 0 && b.extent[1] == 10 && b.start[2] == 9 && b.extent[2] == 3,
	   "its box: experts by EP, columns by ETP");
	ok(!param_find(&t, "model.layers.1.mlp.gate_proj.weight") && !param_find(&t, "model.layers.0.mlp.gate.weight") &&
	   !param_find(&t, "model.layers.3.mlp.experts.up_proj.weight"), "no MLP in a layer with experts, none of these in others");
	ok(total(&t) == model_config_parameters(&c), "as many elements as model_config_parameters() says");
	param_table_release(&t);
}

int main(void)
{
	dense();
	experts();
	transformers();
	variants();
	boxes();
	reports();
	is_str(role_name(ROLE_PARAM), "param", "names of roles");
	is_str(role_name(ROLE_CARRIED), "carried", "and the last");
	return done();
}
