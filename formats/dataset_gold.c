#include "formats/dataset.h"

#include <string.h>

static bool is_blank(const char *s)
{
	return !s[strspn(s, " \t\r\n")];
}

static const char *trimmed(struct arena *a, const char *s, size_t n, bool commas)
{
	char *d = arena_strndup(a, s, n);
	size_t k = 0;

	while (n && strchr(" \t\r\n", s[n - 1]))
		n--;
	for (size_t i = 0; i < n; i++) {
		if ((k || !strchr(" \t\r\n", s[i])) && !(commas && s[i] == ','))
			d[k++] = s[i];
	}
	d[k] = 0;
	return k ? d : NULL;
}

/* What the braces at s[0] hold; the bytes between them or -1. */
static long braces(const char *s)
{
	long depth = 0;

	for (long i = 0; s[i]; i++) {
		if (s[i] == '\\' && s[i + 1])
			i++;
		else if (s[i] == '{')
			depth++;
		else if (s[i] == '}' && --depth == 0)
			return i - 1;
	}
	return -1;
}

const char *dataset_gold(struct arena *a, const char *response)
{
	const char *p, *found = NULL;

	for (p = response; (p = strstr(p, "####")); p += 4)
		found = p + 4;
	if (found && (p = trimmed(a, found, strcspn(found, "\n"), true)))
		return p;
	found = NULL;
	for (p = response; (p = strstr(p, "\\boxed{")); p += 7) {
		if (braces(p + 6) > 0)
			found = p + 6;
	}
	if (found && (p = trimmed(a, found + 1, (size_t)braces(found), false)))
		return p;
	return is_blank(response) ? NULL : response;
}
