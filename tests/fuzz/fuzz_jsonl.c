/*
 * Data sets: whatever is given must open or be refused, and every row that was accepted must read
 * back, with a prompt that is not empty.
 *
 * clang -fsanitize=fuzzer,address,undefined ...; corpus in tests/fuzz/corpus/jsonl.
 */

#include "formats/dataset.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_rows(const char *path, bool skip)
{
	struct dataset_opts o = { .skip_bad = skip };
	struct dataset *d;
	struct err e = ERR_INIT;

	if (dataset_open(&d, path, &o, &e)) {
		if (e.code != EX_DATAERR || !*e.msg)
			abort();
		return;
	}
	for (long i = 0; i < dataset_count(d); i++) {
		struct dataset_row row;

		if (dataset_row(d, i, &row, &e) || row.kind != dataset_kind(d) || !row.messages ||
		    (row.prompt && !*row.prompt))
			abort();
		if (row.kind == DATASET_PREFERENCE && !row.ncompletions)
			abort();
		dataset_row_release(&row);
	}
	dataset_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	int fd = memfd_create("rows", 0);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_rows(path, false);
	read_rows(path, true);
	close(fd);
	return 0;
}
