/* The bytes of a configuration file, before any reader parses them. */
#ifndef OCT_CONFIG_SOURCE_TEXT_H
#define OCT_CONFIG_SOURCE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"

/* Limits that no honest configuration meets: they bound what a hostile one costs. */
enum {
    OCT_SOURCE_MAX_BYTES = 1 << 20,
    OCT_SOURCE_MAX_DEPTH = 64,
    OCT_SOURCE_MAX_MEMBERS = 1024 /* of one map */
};

/* Reads a file whole, at most one byte more than the limit. *text and *name (a copy of `path`) live
 * in `arena`. Errors: OCT_E_IO when it cannot be read. */
oct_status oct_source_read(const char *path, oct_arena *arena, const char **text, size_t *bytes,
                           const char **name, oct_err *err) OCT_MUST_CHECK;

/* At most OCT_SOURCE_MAX_BYTES of printable UTF-8, tabs and newlines. `language` and `file` are for
 * messages; a word of the command line has no lines. Errors: OCT_E_CONFIG with file:line:column. */
oct_status oct_source_check(const char *language, const char *text, size_t bytes, const char *file,
                            bool has_lines, oct_err *err) OCT_MUST_CHECK;

#endif
