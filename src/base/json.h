/* A writer of JSON text. Floats read back to the same bits, non-finite ones are null. Reading is
 * done with jansson. */
#ifndef OCT_BASE_JSON_H
#define OCT_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { OCT_JSON_MAX_DEPTH = 32 };

/* Owner of its text. Calls never fail one by one: the first failure (memory, depth, a value where
 * none can stand) is kept and reported by oct_json_finish. */
typedef struct oct_json {
    char *text; /* 0-terminated once something was written */
    size_t bytes, capacity;
    oct_status status;
    int depth;
    bool has_items[OCT_JSON_MAX_DEPTH + 1]; /* a comma is due before the next item */
    char closer[OCT_JSON_MAX_DEPTH + 1];    /* '}' or ']' of each open level */
} oct_json;

/* An empty text without memory. release frees it and leaves such a one. */
void oct_json_init(oct_json *json);
void oct_json_release(oct_json *json);
void oct_json_clear(oct_json *json); /* empties it and keeps the memory */

/* `key` is the member's name inside an object and NULL inside an array or at the top. */
void oct_json_object(oct_json *json, const char *key);
void oct_json_array(oct_json *json, const char *key);
void oct_json_end(oct_json *json); /* closes the innermost object or array */
void oct_json_string(oct_json *json, const char *key, const char *value); /* NULL: null */
void oct_json_int(oct_json *json, const char *key, int64_t value);
void oct_json_bool(oct_json *json, const char *key, bool value);
void oct_json_null(oct_json *json, const char *key);
void oct_json_double(oct_json *json, const char *key, double value);  /* shortest that reads back */
void oct_json_float(oct_json *json, const char *key, float value);    /* shortest FP32 */
void oct_json_raw(oct_json *json, const char *key, const char *text); /* valid JSON, as it is */

/* Errors: OCT_E_NOMEM; OCT_E_API if a level is open or a call had no place. */
oct_status oct_json_finish(const oct_json *json, oct_err *err) OCT_MUST_CHECK;

#endif
