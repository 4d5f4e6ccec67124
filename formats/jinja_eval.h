#ifndef FORMATS_JINJA_EVAL_H
#define FORMATS_JINJA_EVAL_H

/*
 * From the tree to the output.
 *
 * Filters: abs attr capitalize count default d dictsort e escape first float format indent int
 * items join last length list lower map max min reject rejectattr replace reverse round safe
 * select selectattr sort string sum title tojson trim unique upper wordcount.
 * Tests: boolean callable defined divisibleby endswith eq equalto == escaped even false filter
 * float ge >= gt > greaterthan in integer iterable le <= lower lt < lessthan mapping ne != none
 * number odd sameas sequence startswith string test true undefined upper.
 */

#include "formats/jinja_tree.h"

/* Arguments of a call, evaluated. */
struct jargs {
	struct jvalue *v;
	const char **key; /* NULL for those given by place, which come first */
	long n;
	struct jvalue caller; /* of {% call %}; else undefined */
};

struct jscope {
	struct jscope *up;
	struct jdict vars;
	bool kept; /* a macro refers to it */
};

struct jmacro {
	const struct jnode *node;
	struct jscope *scope; /* where it was defined */
};

struct jloop {
	const struct jnode *node;
	struct jscope *scope; /* around the loop */
	struct jlist *items;
	long index; /* from 0 */
	int depth;
	struct jvalue changed; /* last arguments of loop.changed() */
	bool has_changed;
};

/* self.name, waiting for its call */
struct jmethod {
	struct jvalue self;
	const char *name;
};

/* jinja_run.c */
int jinja_run(struct jrender *r, const struct jnode *root, struct jscope *s) MUST_CHECK;
/* jinja_eval.c */
int jinja_deeper(struct jrender *r) MUST_CHECK;
struct jvalue jscope_get(const struct jscope *s, const char *name);
int jinja_invoke(struct jrender *r, const struct jnode *n, struct jscope *s,
		 const struct jvalue *caller, struct jvalue *out) MUST_CHECK;
int jinja_eval(struct jrender *r, const struct jnode *n, struct jscope *s,
	       struct jvalue *out) MUST_CHECK;
int jinja_macro_call(struct jrender *r, struct jmacro *m, const struct jargs *a,
		     struct jvalue *out) MUST_CHECK;
int jinja_loop_call(struct jrender *r, struct jloop *l, const struct jvalue *items,
		    struct jvalue *out) MUST_CHECK;
int jinja_loop_attr(struct jrender *r, struct jloop *l, const char *name,
		    struct jvalue *out); /* 1: no such attribute */
/* jinja_call.c: attributes, methods, functions */
int jinja_getattr(struct jrender *r, const struct jvalue *o, const char *name,
		  struct jvalue *out) MUST_CHECK;
int jinja_getitem(struct jrender *r, const struct jvalue *o, const struct jvalue *key,
		  struct jvalue *out) MUST_CHECK;
int jinja_slice(struct jrender *r, const struct jvalue *o, const struct jvalue part[3],
		struct jvalue *out) MUST_CHECK;
int jinja_call(struct jrender *r, const struct jvalue *f, const struct jargs *a,
	       struct jvalue *out) MUST_CHECK;
int jinja_globals(struct jrender *r, struct jscope *s) MUST_CHECK;
/* The argument at place i or with that key, or NULL. */
const struct jvalue *jarg(const struct jargs *a, long i, const char *key);
int jarg_int(struct jrender *r, const struct jargs *a, long i, const char *key, long def,
	     long *out) MUST_CHECK;
/* jinja_filter.c, jinja_test.c */
int jinja_filter(struct jrender *r, const char *name, const struct jvalue *v, const struct jargs *a,
		 struct jvalue *out) MUST_CHECK;
int jinja_test(struct jrender *r, const char *name, const struct jvalue *v, const struct jargs *a,
	       bool *out) MUST_CHECK;
bool jinja_has_filter(const char *name);
bool jinja_has_test(const char *name);

#endif
