#include "tools/shared/timing.h"

#include "libcommon/progress.h"

#include <stdio.h>
#include <string.h>

static double spent[TIMING_COUNT];

void timing_add(enum timing what, double start)
{
	spent[what] += seconds_now() - start;
}

void timing_put(struct json_out *out)
{
	json_add_real(out, "timing/load", spent[TIMING_LOAD]);
	json_add_real(out, "timing/save", spent[TIMING_SAVE]);
}

void timing_print(const char *json)
{
	struct json_doc d;
	struct json_out out = { 0 };
	struct err e = ERR_INIT;

	if (json_parse(&d, json, strlen(json), "metrics", 1, &e))
		bug("%s", e.msg);
	json_begin(&out, '{');
	for (size_t i = 0; i < d.root.n; i++) {
		json_key(&out, d.root.member[i].key);
		json_put(&out, &d.root.member[i].value);
	}
	timing_put(&out);
	json_end(&out);
	puts(out.s.s);
	json_out_release(&out);
	json_release(&d);
}
