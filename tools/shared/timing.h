#ifndef TOOLS_SHARED_TIMING_H
#define TOOLS_SHARED_TIMING_H

/*
 * What a program spends on files, by the clock: checkpoints and samples read (opening, checking and
 *packing weights included) and written (until they are on the disk under their name).
 *
 *	double t = seconds_now();
 *	...
 *	timing_add(TIMING_LOAD, t);
 *
 * Only the line on standard output has it: nothing that is stored or hashed may hold a time.
 */

#include "libcommon/json.h"

enum timing { TIMING_LOAD, TIMING_SAVE, TIMING_COUNT };

/* The time since `start`, a seconds_now(), is added up. */
void timing_add(enum timing what, double start);
/* "timing/load" and "timing/save", seconds, as members of the object that is open. */
void timing_put(struct json_out *out);
/* The object `json` with them at its end, on one line to standard output. */
void timing_print(const char *json);

#endif
