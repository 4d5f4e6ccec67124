#ifndef TOOLS_SHARED_CONFIG_EDIT_H
#define TOOLS_SHARED_CONFIG_EDIT_H

/*
 * Side files in which an option changes a key: only the keys concerned are touched, the others keep
 * their order and their values as written.  Where nothing changes, the bytes stay as they are.
 */

#include "libcommon/str.h"
#include "libcommon/tensor.h"

/*
 * Append config.json for weights of type t: dtype and torch_dtype say it (both are added where
 * neither is there), and with `dequantised` quantization_config goes.  Ends the program on text
 * that is no JSON object; `file` names it.
 */
void config_edit_dtype(struct str *out, const char *text, size_t n, const char *file, enum dtype t,
		       bool dequantised);

#endif
