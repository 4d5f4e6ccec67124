#include "libcommon/str.h"

#include "libcommon/xalloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void room(struct str *t, size_t more)
{
	if (t->len + more + 1 <= t->cap)
		return;
	t->cap = (t->len + more + 1) * 2;
	t->s = xrealloc(t->s, t->cap);
}

void str_add(struct str *t, const char *bytes, size_t n)
{
	room(t, n);
	if (n)
		memcpy(t->s + t->len, bytes, n);
	t->len += n;
	t->s[t->len] = 0;
}

void str_puts(struct str *t, const char *s)
{
	str_add(t, s, strlen(s));
}

void str_putc(struct str *t, int c)
{
	char b = (char)c;

	str_add(t, &b, 1);
}

void str_printf(struct str *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	room(t, (size_t)n);
	va_start(ap, fmt);
	vsnprintf(t->s + t->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	t->len += (size_t)n;
}

void str_cut(struct str *t, size_t len)
{
	if (len < t->len) {
		t->len = len;
		t->s[len] = 0;
	}
}

char *str_detach(struct str *t)
{
	char *s = t->s ? t->s : xstrdup("");

	memset(t, 0, sizeof(*t));
	return s;
}

void str_release(struct str *t)
{
	free(t->s);
	memset(t, 0, sizeof(*t));
}
