/* TOML 1.0 to a value tree: the whole language, nothing beyond it. Dates become OCT_VALUE_DATE. */
#ifndef OCT_CONFIG_TOML_H
#define OCT_CONFIG_TOML_H

#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"
#include "config/value.h"

/* Parses `text`; *out is a map. `file` names the file in messages and nodes and is borrowed by the
 * tree. Nodes know where they were written; a table knows its header, or where a dotted key first
 * named it. The limits of config/source_text.h hold. Integers have 64 bits, a float that only
 * infinity could stand for is an error, \u0000 is refused (strings end there), CRLF in a string
 * becomes LF. Errors: OCT_E_CONFIG with file:line:column; a key or table given twice names both
 * lines. */
oct_status oct_toml_parse(const char *text, size_t bytes, const char *file, oct_arena *arena,
                          oct_value **out, oct_err *err) OCT_MUST_CHECK;

/* Reads and parses a file. Errors: OCT_E_IO when it cannot be read, else as oct_toml_parse. */
oct_status oct_toml_read_file(const char *path, oct_arena *arena, oct_value **out,
                              oct_err *err) OCT_MUST_CHECK;

#endif
