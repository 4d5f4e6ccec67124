#ifndef TOOLS_INSPECT_VALUES_H
#define TOOLS_INSPECT_VALUES_H

/* Tensors of any size, a piece at a time, element by element in the order of their flat index. */

#include "formats/checkpoint.h"

long tensor_volume(const struct checkpoint_tensor *t);
/* The bytes of elements [first, first + n) of a tensor, into out.  Ends the program on failure. */
void read_elements(void *out, struct checkpoint *c, long tensor, long first, long n);
enum { PIECE = 1 << 20 };               /* elements that one read takes at most */

/* Element i of an array of that type as a number; integers beyond 2^53 are rounded. */
double element_value(const void *p, enum dtype t, long i);
/* As a decimal that reads back as the same value of that type: "0.1", "-3", "nan", "inf", "true". */
const char *element_text(char buf[32], const void *p, enum dtype t, long i);

#endif
