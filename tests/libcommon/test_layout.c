#include "libcommon/layout.h"

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

#define REST "\"ep\":1,\"etp\":1,\"dp\":1,\"cp\":1,\"layers\":2"

int main(void)
{
	round_trip();
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
	refused("{\"tp\":1,\"pp\":2," REST ",\"stage_of_layer\":[0,\"x\"]}", "stage_of_layer");
	refused("{\"tp\":2,\"pp\":1,\"ep\":3,\"etp\":1,\"dp\":1,\"cp\":1,\"layers\":2}", "does not "
											 "divide");
	refused("{\"tp\":1,\"pp\":1,\"ep\":1,\"etp\":1,\"dp\":1,\"cp\":1,\"layers\":99999}",
		"layout.layers");
	return done();
}
