#ifndef FORMATS_JINJA_METHOD_H
#define FORMATS_JINJA_METHOD_H

/* Methods of strings, dicts and lists. */

#include "formats/jinja_eval.h"

struct method {
	enum jtype of;
	const char *name;
	int (*call)(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		    struct jvalue *out);
	int most; /* arguments */
};

/* NULL where o has no such method. */
const struct method *method_of(const struct jvalue *o, const char *name);

#endif
