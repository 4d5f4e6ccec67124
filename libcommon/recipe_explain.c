#include "libcommon/recipe_node.h"

#include <string.h>

static const char *const state_text[] = {
	"used", "noted: accepted, without effect here", "refused: only its default is taken"
};
static const char *const state_name[] = { "used", "noted", "refused" };

static void explain(struct str *out, const struct recipe_key *k)
{
	char want[256];

	str_printf(out, "%s\n  meaning: %s\n  type:    %s\n  default: %s\n", k->path, k->meaning, recipe_wanted(want, k), k->def);
	if (*k->unit)
		str_printf(out, "  unit:    %s\n", k->unit);
	str_printf(out, "  read by: %s\n  state:   %s\n", *k->tools ? k->tools : "no tool", state_text[k->state]);
}

/* A section: its keys, one a line. */
static bool explain_section(struct str *out, const struct place *p)
{
	char name[512];
	size_t n = strlen(place_text(name, sizeof(name), p));
	bool any = false;

	for (int i = 0; i < recipe_nkeys; i++)
		if (!strncmp(recipe_keys[i].path, name, n) && recipe_keys[i].path[n] == '.') {
			str_printf(out, "%-8s%s: %s\n", state_name[recipe_keys[i].state], recipe_keys[i].path, recipe_keys[i].meaning);
			any = true;
		}
	return any;
}

int recipe_explain(struct str *out, const char *key, struct err *e)
{
	struct node_space s = { 0 };
	struct place p;
	char name[512];
	int bad = 0;

	if (place_parse(&p, &s, key, strlen(key))) {
		bad = err_set(e, EX_CONFIG, "'%.200s' is no key", key);
		goto out;
	}
	place_rename(&p, &s);
	place_text(name, sizeof(name), &p);
	const struct recipe_key *k = recipe_key_at(p.part, p.n);
	if (strcmp(name, key) && (k || recipe_is_section(p.part, p.n)))
		str_printf(out, "%s is another name of %s\n", key, name);
	if (k)
		explain(out, k);
	else if (!explain_section(out, &p)) {
		const struct recipe_key *near = recipe_key_nearest(p.part, p.n);
		bad = err_set(e, EX_CONFIG, "unknown key '%.200s'%s%s%s", key, near ? "; nearest is '" : "",
			      near ? near->path : "", near ? "'" : "");
	}
out:
	arena_release(&s.arena);
	return bad;
}

/* mdoc takes a leading dot or quote, and a backslash anywhere, for its own. */
static void roff(FILE *f, const char *t)
{
	if (*t == '.' || *t == '\'')
		fputs("\\&", f);
	for (; *t; t++)
		if (*t == '\\')
			fputs("\\e", f);
		else if (*t == '-')
			fputs("\\-", f);
		else
			putc(*t, f);
}

static void mdoc(FILE *f, const struct recipe_key *k, const char *section)
{
	char want[256];

	if (section)
		fprintf(f, ".Ss %s\n.Bl -tag -width Ds\n", section);
	fputs(".It Cm ", f);
	roff(f, k->path);
	putc('\n', f);
	roff(f, k->meaning);
	fputs(".\n.Pp\n", f);
	roff(f, recipe_wanted(want, k));
	fputs("; default ", f);
	roff(f, k->def);
	if (*k->unit)
		fprintf(f, "; unit: %s", k->unit);
	fprintf(f, "; %s", state_name[k->state]);
	if (*k->tools)
		fprintf(f, "; read by %s", k->tools);
	fputs(".\n", f);
}

static const char page_head[] =
	".Dd December 2, 2026\n.Dt CAIRN-RECIPE-KEYS 5\n.Os\n.Sh NAME\n.Nm cairn-recipe-keys\n.Nd every key of a recipe\n"
	".Sh DESCRIPTION\nThis page is made from the table that the programs read.\nWhat a recipe is and how it is loaded, "
	"tells\n.Xr cairn-recipe 5 .\n.Pp\nA\n.Em used\nkey has an effect, a\n.Em noted\nkey is accepted and has none, "
	"a\n.Em refused\nkey is an error unless it has its default.\nA\n.Sq *\nstands for any one name.\n.Sh KEYS\n";
static const char page_tail[] = ".El\n.Sh SEE ALSO\n.Xr cairn-inspect 1 ,\n.Xr cairn-recipe 5\n";

void recipe_print_table(FILE *f, enum recipe_format format)
{
	char last[64] = "";

	if (format == RECIPE_MDOC)
		fputs(page_head, f);

	for (int i = 0; i < recipe_nkeys; i++) {
		const struct recipe_key *k = &recipe_keys[i];
		char section[64], want[256];

		snprintf(section, sizeof(section), "%.*s", (int)strcspn(k->path, "."), k->path);
		if (format == RECIPE_TSV) {
			fprintf(f, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k->path, recipe_wanted(want, k), k->def, k->unit, k->tools,
				state_name[k->state], k->meaning);
		} else if (format == RECIPE_TEXT) {
			struct str t = { 0 };
			explain(&t, k);
			fprintf(f, "%s\n", t.s);
			str_release(&t);
		} else {
			bool fresh = strcmp(section, last) != 0;
			if (fresh && *last)
				fputs(".El\n", f);
			mdoc(f, k, fresh ? section : NULL);
		}
		snprintf(last, sizeof(last), "%s", section);
	}
	if (format == RECIPE_MDOC)
		fputs(page_tail, f);
}
