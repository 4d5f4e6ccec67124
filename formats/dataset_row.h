#ifndef FORMATS_DATASET_ROW_H
#define FORMATS_DATASET_ROW_H

/* Inside of formats/dataset.h: from a JSON object to a row, by the schemas listed there. */

#include "formats/dataset.h"

struct row_rules {
	const struct dataset_opts *o;
	const char *head, *tail; /* the prompt template around {}; NULL: none */
	const char *system;      /* or NULL */
	const char *file;
};

/* row->raw and row->line are set; fills the rest but index and doc, in row->arena. */
int row_interpret(struct dataset_row *row, const struct row_rules *rules, struct err *e) MUST_CHECK;
/* Splits a prompt template at its {}, and turns {{ and }} into braces, in place. */
int row_template(char *text, const char *file, const char **head, const char **tail,
		 struct err *e) MUST_CHECK;

#endif
