#include "formats/tokenizer_stages.h"

#include <string.h>

/*
 * 33-126, 161-172 and 174-255 spell themselves, the other 68 are U+0100 and up in ascending order
 * (GPT-2's encoder.py).
 */
static bool spells_itself(uint32_t b)
{
	return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

uint32_t byte_char(unsigned char b)
{
	if (spells_itself(b))
		return b;
	return b <= 32 ? 256u + b : b <= 160 ? 256u + 33 + (b - 127u) : 256u + 67;
}

int char_byte(uint32_t c)
{
	if (c < 256)
		return spells_itself(c) ? (int)c : -1;
	if (c <= 256 + 32)
		return (int)c - 256;
	if (c <= 256 + 66)
		return (int)c - 256 - 33 + 127;
	return c == 256 + 67 ? 173 : -1;
}

size_t utf8_get(uint32_t *c, const char *s, size_t n)
{
	const unsigned char *u = (const unsigned char *)s;
	bool good;
	size_t len;

	if (u[0] < 0x80) {
		*c = u[0];
		return 1;
	}
	len = utf8_step(s, n, &good);
	if (!good)
		return 0;
	*c = len == 2 ? (u[0] & 31u) << 6 | (u[1] & 63u) :
	     len == 3 ? (u[0] & 15u) << 12 | (u[1] & 63u) << 6 | (u[2] & 63u) :
			(u[0] & 7u) << 18 | (u[1] & 63u) << 12 | (u[2] & 63u) << 6 | (u[3] & 63u);
	return len;
}

bool utf8_is_valid(const char *s, size_t n, size_t *bad)
{
	uint32_t c;
	size_t len;

	for (size_t i = 0; i < n; i += len) {
		len = utf8_get(&c, s + i, n - i);
		if (!len) {
			*bad = i;
			return false;
		}
	}
	return true;
}

void utf8_add_lossy(struct str *out, const char *s, size_t n)
{
	size_t kept = 0, len;
	bool good;

	for (size_t i = 0; i < n; i += len) {
		len = utf8_step(s + i, n - i, &good);
		if (good)
			continue;
		str_add(out, s + kept, i - kept);
		str_add(out, "\xef\xbf\xbd", 3);
		kept = i + len;
	}
	str_add(out, s + kept, n - kept);
}

bool is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
	       c == 0x205f || c == 0x3000;
}

bool spelling_bytes(struct str *out, const char *s, size_t n)
{
	size_t was = out->len, len;

	for (size_t i = 0; i < n; i += len) {
		uint32_t c;
		int b;

		len = utf8_get(&c, s + i, n - i);
		b = len ? char_byte(c) : -1;
		if (b < 0) {
			str_cut(out, was);
			return false;
		}
		str_putc(out, b);
	}
	return true;
}

static int hex_value(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int byte_token(const char *s, size_t n)
{
	if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || hex_value(s[3]) < 0 ||
	    hex_value(s[4]) < 0)
		return -1;
	return hex_value(s[3]) * 16 + hex_value(s[4]);
}
