#include "libcommon/utf8.h"

size_t utf8_step(const char *text, size_t n, bool *good)
{
	const unsigned char *p = (const unsigned char *)text;
	unsigned char low = 0x80, high = 0xbf;
	size_t len, i;

	*good = true;
	if (p[0] < 0x80)
		return 1;
	len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	if (p[0] < 0xc2 || p[0] > 0xf4) {
		*good = false;
		return 1;
	}
	if (p[0] == 0xe0)
		low = 0xa0;
	if (p[0] == 0xed)
		high = 0x9f;
	if (p[0] == 0xf0)
		low = 0x90;
	if (p[0] == 0xf4)
		high = 0x8f;
	for (i = 1; i < len; i++, low = 0x80, high = 0xbf)
		if (i >= n || p[i] < low || p[i] > high) {
			*good = false;
			return i;
		}
	return len;
}

size_t utf8_put(char *p, unsigned c)
{
	if (c < 0x80) {
		p[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		p[0] = (char)(0xc0 | c >> 6);
		p[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		p[0] = (char)(0xe0 | c >> 12);
		p[1] = (char)(0x80 | (c >> 6 & 63));
		p[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	p[0] = (char)(0xf0 | c >> 18);
	p[1] = (char)(0x80 | (c >> 12 & 63));
	p[2] = (char)(0x80 | (c >> 6 & 63));
	p[3] = (char)(0x80 | (c & 63));
	return 4;
}
