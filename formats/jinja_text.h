#ifndef FORMATS_JINJA_TEXT_H
#define FORMATS_JINJA_TEXT_H

/* Strings as Python has them: code points in UTF-8, with tags that follow their bytes. */

#include "formats/jinja.h"

enum jcase { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_FILTER_TITLE, CASE_CAPITALIZE };
long utf8_count(const char *s, size_t n);
size_t utf8_offset(const char *s, size_t n, long index); /* bytes before code point `index` */
size_t jinja_utf8_get(const char *s, size_t n,
		int32_t *c); /* bytes of the first one; invalid: 1, U+FFFD */
bool uni_space(int32_t c);   /* as str.isspace */
int jtext_case(struct jrender *r, const struct jvalue *s, enum jcase how,
	       struct jvalue *out) MUST_CHECK;
struct jvalue jtext_strip(const struct jvalue *s, const struct jvalue *chars, bool left,
			  bool right);
int jtext_replace(struct jrender *r, const struct jvalue *s, const struct jvalue *from,
		  const struct jvalue *to, long count, struct jvalue *out) MUST_CHECK;
int jtext_split(struct jrender *r, const struct jvalue *s, const struct jvalue *sep, long max,
		bool right, struct jvalue *out) MUST_CHECK;
int jtext_escape(struct jrender *r, const struct jvalue *s, struct jvalue *out) MUST_CHECK;
int jtext_indent(struct jrender *r, const struct jvalue *s, const struct jvalue *width, bool first,
		 bool blank, struct jvalue *out) MUST_CHECK;
int jtext_format(struct jrender *r, const struct jvalue *fmt, const struct jvalue *args,
		 struct jvalue *out) MUST_CHECK;
int jtext_reverse(struct jrender *r, const struct jvalue *s, struct jvalue *out) MUST_CHECK;
size_t jtext_break(const char *s,
		   size_t n); /* bytes of the line break at s, 0: none; as str.splitlines */
const char *uni_special_upper(int32_t c, bool title); /* capitals of several code points, or NULL */
bool jtext_class(int32_t c, const char *what); /* digit, alpha, alnum */
int jtext_date(struct jrender *r, const struct jvalue *fmt,
	       struct jvalue *out) MUST_CHECK; /* strftime of r->date */
bool jtext_all_case(const struct jvalue *s, bool upper);
long jtext_find(const struct jvalue *s, const struct jvalue *what,
		bool last); /* byte offset or -1 */

#endif
