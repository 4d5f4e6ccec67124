#include "libcommon/layout.h"

#include "libcommon/model_config.h"

#include "tests/lib/tap.h"

static int parse(struct layout *l, const char *text, struct err *e)
{
	struct json_doc d;
	int rc = -2;

	*e = (struct err)ERR_INIT;
	if (json_parse(&d, text, strlen(text), "manifest.json", 1, e) == 0)
		rc = layout_from_json(l, &d, &d.root, e);
	json_release(&d);
	return rc;
}

static void refused(const char *text, const char *part)
{
	struct err e;
	struct layout l;

	ok(parse(&l, text, &e) == -1 && e.code == EX_DATAERR && strstr(e.msg, part), "%s", e.msg);
}

static void round_trip(void)
{
	struct layout l, back;
	struct json_out o = { .indent = 0 };
	struct err e;

	layout_init(&l, 3);
	ok(l.tp == 1 && l.pp == 1 && l.ep == 1 && l.etp == 1 && l.dp == 1 && l.cp == 1 &&
		   !l.stage_of_layer,
	   "one rank");
	layout_to_json(&o, &l);
	is_str(o.s.s,
	       "{\"tp\": 1, \"pp\": 1, \"ep\": 1, \"etp\": 1, \"dp\": 1, \"cp\": 1, \"layers\": 3, "
	       "\"stage_of_layer\": null}",
	       "is written");
	ok(parse(&back, o.s.s, &e) == 0 && back.layers == 3 && !back.stage_of_layer, "and read");
	json_out_release(&o);

	l = (struct layout){ .tp = 2, .pp = 4, .ep = 4, .etp = 1, .dp = 6, .cp = 2, .layers = 5 };
	l.stage_of_layer = xcalloc(5, sizeof(long));
	memcpy(l.stage_of_layer, (long[]){ 0, 0, 1, 3, 3 }, 5 * sizeof(long));
	layout_to_json(&o, &l);
	ok(parse(&back, o.s.s, &e) == 0 && back.tp == 2 && back.pp == 4 && back.ep == 4 &&
		   back.etp == 1 && back.dp == 6 && back.cp == 2 && back.layers == 5 &&
		   !memcmp(back.stage_of_layer, l.stage_of_layer, 5 * sizeof(long)),
	   "six dimensions and uneven stages");
	json_out_release(&o);
	layout_release(&l);
	layout_release(&back);
	layout_release(&back);
}

static void stages(void)
{
	struct layout l, copy;
	struct err e = ERR_INIT;
	char *s;

	layout_init(&l, 32);
	ok(!layout_parse_stages(&l, "8,8,9,7", &e) && l.pp == 4 && l.stage_of_layer[7] == 0 && l.stage_of_layer[24] == 2 &&
		   l.stage_of_layer[25] == 3,
	   "8,8,9,7");
	s = layout_stages(&l);
	is_str(s, "8,8,9,7", "and back");
	free(s);
	l.dp = 3;
	s = layout_text(&l);
	is_str(s, "pp 4 (8,8,9,7), dp 3", "in words");
	free(s);
	layout_copy(&copy, &l);
	ok(layout_equal(&copy, &l) && copy.stage_of_layer != l.stage_of_layer, "a copy");
	copy.stage_of_layer[24] = 3;
	ok(!layout_equal(&copy, &l), "that differs in one layer");
	layout_release(&copy);
	const char *const bad[] = { "8,8,9,6", "", "8,,9,7", "8,8,9,7,", "-1,33", "8 ,24", "a", "99999999999999999999", "33", "0x20" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ok(layout_parse_stages(&l, bad[i], &e) == -1 && e.code == EX_USAGE && l.pp == 4, "\"%s\": %s", bad[i], e.msg);
	ok(!layout_parse_stages(&l, "0,32,0", &e) && l.pp == 3 && l.stage_of_layer[0] == 1, "stages without layers");
	layout_release(&l);
	for (long layers = 1; layers < 12; layers++)
		for (long pp = 1; pp <= layers; pp++) {
			long n[12] = { 0 };
			bool good = true;

			layout_init(&l, layers);
			layout_balance(&l, pp);
			for (long i = 0; i < layers; i++)
				n[layout_stage(&l, i)]++;
			for (long k = 1; k < pp; k++)
				good &= n[k] <= n[k - 1];
			good &= n[0] - n[pp - 1] <= 1 && n[pp - 1] > 0;
			if (!good)
				ok(false, "%ld layers on %ld stages", layers, pp);
			layout_release(&l);
		}
	layout_init(&l, 10);
	layout_balance(&l, 4);
	s = layout_stages(&l);
	is_str(s, "3,3,2,2", "10 layers on 4 stages");
	free(s);
	layout_interleave(&l, 2, 3);
	s = layout_stages(&l);
	is_str(s, "2,2/2,2/1,1", "10 layers on 2 stages in 3 turns");
	ok(layout_turns(&l) == 3 && layout_turn(&l, 3) == 0 && layout_turn(&l, 4) == 1 && layout_turn(&l, 9) == 2, "turns of layers");
	ok(layout_bad_stage(&l) == -1, "in order");
	l.stage_of_layer[9] = 0;
	ok(layout_bad_stage(&l) == 9, "a last turn without its last stage");
	l.stage_of_layer[9] = 1;
	l.stage_of_layer[0] = l.stage_of_layer[1] = 1;
	ok(layout_bad_stage(&l) == 4, "a first turn without its first stage");
	ok(!layout_parse_stages(&l, s, &e) && l.pp == 2 && layout_turns(&l) == 3, "read back");
	free(s);
	ok(layout_parse_stages(&l, "2,2/2,2,2", &e) == -1, "turns of different widths: %s", e.msg);
	ok(layout_parse_stages(&l, "4,0/3,3", &e) == -1, "a turn that passes a stage over: %s", e.msg);
	layout_release(&l);
}

static struct model_config model(void)
{
	return (struct model_config){ .vocab = 99, .hidden = 12, .intermediate = 24, .layers = 6, .heads = 12, .kv_heads = 4, .head_dim = 2 };
}

static void cannot(struct layout l, const char *part)
{
	struct model_config c = model();
	struct err e = ERR_INIT;

	ok(layout_check(&l, &c, &e) == -1 && e.code == EX_USAGE && strstr(e.msg, part), "%s", e.msg);
}

static void checks(void)
{
	struct model_config c = model();
	struct err e = ERR_INIT;
	struct layout l;
	long fine = 0;

	for (long tp = 1; tp <= 12; tp++) {
		layout_init(&l, 6);
		l.tp = tp;
		fine += !layout_check(&l, &c, &e);
	}
	/* 1, 2, 4, 12: 3 and 6 neither divide the 4 kv heads nor are divided. */
	ok(fine == 4, "TP that the heads allow");
	layout_init(&l, 6);
	layout_balance(&l, 4);
	l.dp = 7;
	ok(!layout_check(&l, &c, &e), "pp 4 of 6 layers, dp 7");
	layout_release(&l);
	struct layout one = { 1, 1, 1, 1, 1, 1, 6, NULL }, x;
	x = one, x.tp = 0, cannot(x, "tp 0: wanted 1 to");
	x = one, x.dp = 1L << 40, cannot(x, "dp 1099511627776");
	x = one, x.dp = x.tp = 1 << 15, cannot(x, "more than 1048576 ranks");
	x = one, x.tp = 5, cannot(x, "does not divide the model's attention heads, 12: use a divisor such as 4");
	x = one, x.tp = 6, cannot(x, "4 key-value heads: one must divide the other; use tp 4");
	x = one, x.layers = 5, cannot(x, "a layout of 5 layers, but the model has 6");
	x = one, x.pp = 2, cannot(x, "without the stages");
	x = one, layout_balance(&x, 7), cannot(x, "pp 7 is more than the model's 6 layers: use at most pp 6"), layout_release(&x);
	x = one, x.ep = 4, x.dp = 2, cannot(x, "use a dp that is a multiple of 4");
	x = one, x.ep = 2, x.dp = 2, cannot(x, "the model has no experts");
	c.intermediate = 3;
	c.heads = c.kv_heads = 2;
	x = one, x.tp = 2;
	ok(layout_check(&x, &c, &e) == -1 && strstr(e.msg, "intermediate_size), 3"), "an MLP of 3 on 2 ranks, though gate and up have 6: %s", e.msg);
}

#define REST "\"ep\":1,\"etp\":1,\"dp\":1,\"cp\":1,\"layers\":2"

int main(void)
{
	round_trip();
	stages();
	checks();
	refused("[]", "wanted an object");
	refused("{\"pp\":1," REST "}", "layout.tp");
	refused("{\"tp\":0,\"pp\":1," REST "}", "layout.tp: found 0");
	refused("{\"tp\":99999999999,\"pp\":1," REST "}", "layout.tp");
	refused("{\"tp\":1,\"pp\":2," REST "}", "stage_of_layer");
	refused("{\"tp\":1,\"pp\":2," REST ",\"stage_of_layer\":[0]}", "wanted an array of 2");
	refused("{\"tp\":1,\"pp\":2," REST ",\"stage_of_layer\":7}", "wanted an array of 2");
	refused("{\"tp\":1,\"pp\":2," REST ",\"stage_of_layer\":[0,2]}", "stage_of_layer[1]: found "
									 "2, wanted 0 to 1");
	refused("{\"tp\":1,\"pp\":2," REST ",\"stage_of_layer\":[1,0]}", "stage_of_layer[1]: found "
									 "0, wanted 1 to 1");
	refused("{\"tp\":1,\"pp\":2,\"ep\":1,\"etp\":1,\"dp\":1,\"cp\":1,\"layers\":3,\"stage_of_layer\":[0,1,0]}",
		"stage_of_layer[2]: found 0");
	refused("{\"tp\":1,\"pp\":2," REST ",\"stage_of_layer\":[0,\"x\"]}", "stage_of_layer");
	refused("{\"tp\":2,\"pp\":1,\"ep\":3,\"etp\":1,\"dp\":1,\"cp\":1,\"layers\":2}", "does not "
											 "divide");
	refused("{\"tp\":1,\"pp\":1,\"ep\":1,\"etp\":1,\"dp\":1,\"cp\":1,\"layers\":99999}",
		"layout.layers");
	return done();
}
