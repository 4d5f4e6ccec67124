#ifndef FORMATS_JINJA_FILTER_H
#define FORMATS_JINJA_FILTER_H

/* Filters, in jinja_filter.c (texts, numbers, the table) and jinja_filter_list.c (sequences). */

#include "formats/jinja_eval.h"
#include "formats/jinja_text.h"

struct filter {
	const char *name;
	int (*call)(struct jrender *r, const struct filter *f, const struct jvalue *v,
		    const struct jargs *a, struct jvalue *out);
	int most; /* arguments */
};

#define FILTER(name) \
	int name(struct jrender *r, const struct filter *f, const struct jvalue *v, \
		 const struct jargs *a, struct jvalue *out)
FILTER(f_default);
FILTER(f_length);
FILTER(f_end);
FILTER(f_list);
FILTER(f_reverse);
FILTER(f_items);
FILTER(f_sort);
FILTER(f_dictsort);
FILTER(f_extreme);
FILTER(f_unique);
FILTER(f_attr);
FILTER(f_map);
FILTER(f_select);
FILTER(f_sum);
FILTER(f_join);
#undef FILTER

/* Is there an argument that is true? */
bool filter_flag(const struct jargs *a, long i, const char *key);
/* The argument's text; false where there is none. */
bool filter_text(const struct jargs *a, long i, const char *key, struct jvalue *out);

#endif
