/*
 * dump_logits CKPT [float32|bfloat16] <IDS >LOGITS: each line of standard input is a sequence of token ids; the logits of every
 * position go to standard output as raw floats [tokens, vocab], for tests/oracle/smollm2.py.
 */
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tools/shared/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long read_ids(int **ids, char *line, long vocab)
{
	long n = 0, cap = 0, id;
	char *end;

	*ids = NULL;
	for (char *p = line;; p = end) {
		id = strtol(p, &end, 10);
		if (end == p)
			return n;
		if (id < 0 || id >= vocab)
			die(EX_DATAERR, "standard input: id %ld, the vocabulary has %ld", id, vocab);
		GROW(*ids, n, cap);
		(*ids)[n++] = (int)id;
	}
}

static void dump(struct model *m, const int *ids, long n)
{
	long cu[2] = { 0, n }, vocab = m->table.config.vocab;
	struct batch b = { .rows = n, .ids = ids, .nseq = 1, .cu = cu };
	struct pass *p = pass_new(m, n, false, false);
	float *z = xmalloc((size_t)(n * vocab) * sizeof(float));

	pass_forward(p, &b);
	pass_logits(p, z, 0, n);
	if (fwrite(z, sizeof(float), (size_t)(n * vocab), stdout) != (size_t)(n * vocab))
		die(EX_IOERR, "standard output: cannot write");
	free(z);
	pass_free(p);
}

int main(int argc, char **argv)
{
	struct checkpoint c;
	struct model m;
	struct err e = ERR_INIT;
	const struct ops *k;
	char *line = NULL;
	size_t cap = 0;

	if (argc < 2)
		die(EX_USAGE, "usage: dump_logits CKPT [float32|bfloat16] <IDS >LOGITS");
	pool_start(0);
	k = ops_find("cpu", NULL, &e);
	if (!k)
		die_err(&e);
	load_checkpoint(&c, argv[1]);
	load_model(&m, &c, k, NULL, argc > 2 && !strcmp(argv[2], "bfloat16") ? DTYPE_BF16 : DTYPE_F32, 0, 0);
	while (getline(&line, &cap, stdin) > 0) {
		int *ids;
		long n = read_ids(&ids, line, m.table.config.vocab);

		if (n)
			dump(&m, ids, n);
		free(ids);
	}
	free(line);
	model_release(&m);
	checkpoint_close(&c);
	return 0;
}
