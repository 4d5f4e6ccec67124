#include "tools/shared/expert_names.h"

#include <stdlib.h>
#include <string.h>

static const char experts[] = ".experts.", mixtral[] = ".block_sparse_moe.", mlp[] = ".mlp.";

/* Behind ".experts." in a name that has it. */
static const char *behind_experts(const struct param *p)
{
	const char *at = strstr(p->name, experts);

	if (!at)
		bug("%s: no name of experts", p->name);
	return at + sizeof(experts) - 1;
}

char *expert_apart_name(const struct param *p, long expert)
{
	const char *rest = behind_experts(p);

	return xasprintf("%.*s%ld.%s", (int)(rest - p->name), p->name, expert, rest);
}

char *expert_block_name(const struct param *p, const struct expert_spelling *s)
{
	const char *at = strstr(p->name, mixtral);

	if (!at || !s->mlp)
		return xstrdup(p->name);
	return xasprintf("%.*s%s%s", (int)(at - p->name), p->name, mlp, at + sizeof(mixtral) - 1);
}

char *expert_fused_name(const struct param *p, const struct expert_spelling *s)
{
	char *block = expert_block_name(p, s), *name;
	size_t n = (size_t)(strstr(block, experts) - block) + sizeof(experts) - 1;

	name = xasprintf("%.*s%s", (int)n, block,
			 p->kind == PARAM_EXPERT_DOWN ? "down_proj" : "gate_up_proj");
	free(block);
	return name;
}

void expert_spelling_put(struct str *out, const struct expert_spelling *s)
{
	struct json_out o = { 0 };

	json_begin(&o, '{');
	json_add_str(&o, "experts", s->fused ? "fused" : "apart");
	json_add_str(&o, "block", s->mlp ? "mlp" : "own");
	json_end(&o);
	str_putc(&o.s, '\n');
	str_add(out, o.s.s, o.s.len);
	json_out_release(&o);
}

int expert_spelling_get(struct expert_spelling *s, const char *text, size_t n, struct err *e)
{
	const char *how, *block;
	struct json_doc d;
	int rc;

	rc = json_parse(&d, text, n, EXPERT_SPELLING_FILE, 1, e);
	if (!rc && d.root.type != JSON_OBJECT)
		rc = err_set(e, EX_DATAERR, "%s: found %s, wanted an object", EXPERT_SPELLING_FILE,
			     json_type_name(&d.root));
	if (!rc)
		rc = json_str(&d, json_get(&d.root, "experts"), "experts", &how, e) ||
				     json_str(&d, json_get(&d.root, "block"), "block", &block, e)
			     ? -1
			     : 0;
	if (!rc)
		*s = (struct expert_spelling){ !strcmp(how, "fused"), !strcmp(block, "mlp") };
	json_release(&d);
	return rc;
}
