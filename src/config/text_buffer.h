/* A text that grows in an arena, for the writers of configurations and their documentation. */
#ifndef OCT_CONFIG_TEXT_BUFFER_H
#define OCT_CONFIG_TEXT_BUFFER_H

#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"

/* data is NUL-terminated from the first append on. */
typedef struct oct_text_buffer {
    oct_arena *arena;
    char *data;
    size_t length;
    size_t capacity;
} oct_text_buffer;

/* As printf. Errors: OCT_E_NOMEM. */
oct_status oct_text_append(oct_text_buffer *buffer, oct_err *err, const char *fmt, ...)
    OCT_PRINTF(3, 4) OCT_MUST_CHECK;

/* In double quotes, escaped so that JSON and YAML read the same string back. */
oct_status oct_text_append_quoted(oct_text_buffer *buffer, const char *string,
                                  oct_err *err) OCT_MUST_CHECK;

/* A finite number in the fewest digits that read back to the same bits, always with a point or an
 * exponent. */
oct_status oct_text_append_float(oct_text_buffer *buffer, double number,
                                 oct_err *err) OCT_MUST_CHECK;

/* A copy of [start, start + length) with a closing NUL. */
oct_status oct_text_copy(oct_arena *arena, const char *start, size_t length, const char **out,
                         oct_err *err) OCT_MUST_CHECK;

#endif
