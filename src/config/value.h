/* The value tree that every configuration reader produces. Nodes know where they were written. */
#ifndef OCT_CONFIG_VALUE_H
#define OCT_CONFIG_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef enum oct_value_kind {
    OCT_VALUE_NULL,
    OCT_VALUE_BOOL,
    OCT_VALUE_INT,
    OCT_VALUE_FLOAT,
    OCT_VALUE_STRING,
    OCT_VALUE_DATE, /* a date, a time or both; only TOML has them, and no key takes one */
    OCT_VALUE_LIST,
    OCT_VALUE_MAP
} oct_value_kind;

/* One node; it and its strings live in the arena of the reader. */
typedef struct oct_value {
    oct_value_kind kind;
    const char *file; /* the file, or the whole word of a key=value override */
    int line;         /* 1-based; 0 for a word */
    int column;
    const char *key;    /* a member of a map; else NULL */
    int key_line;       /* where the key stands */
    const char *origin; /* the key of another dialect that the value was written under, or NULL */
    const char *text;   /* a scalar as written, escapes resolved; else NULL */
    bool boolean;
    int64_t integer;
    double real;             /* of an INT as well */
    struct oct_value *first; /* children of a LIST or MAP, in file order */
    struct oct_value *last;
    struct oct_value *next;
    int64_t count;
} oct_value;

enum { OCT_VALUE_WORDS = 512 };

/* A new node without children. */
oct_status oct_value_create(oct_arena *arena, oct_value_kind kind, const char *file, int line,
                            int column, oct_value **out, oct_err *err) OCT_MUST_CHECK;

/* Appends a child. For a map set child->key first; a repeated key is the reader's business. */
void oct_value_append(oct_value *parent, oct_value *child);

/* The member of a map, or NULL. */
oct_value *oct_value_find(const oct_value *map, const char *key);

/* The value at a.b.c below a map, or NULL. */
oct_value *oct_value_at(const oct_value *map, const char *path);

/* Puts a value at a.b.c below a map, with maps on the way where there are none; what was there is
 * replaced. value->key is set. */
oct_status oct_value_put(oct_value *map, const char *path, oct_value *value, oct_arena *arena,
                         oct_err *err) OCT_MUST_CHECK;

/* "file:line", or the word itself; with the key that it was written under, if it has another name
 * there. Returns `buffer`. */
const char *oct_value_where(const oct_value *value, char buffer[OCT_VALUE_WORDS]);

/* What a message says was found: `string "2e-5"`, `integer 3`, `map`. Returns `buffer`. */
const char *oct_value_describe(const oct_value *value, char buffer[OCT_VALUE_WORDS]);

/* A copy that shares strings only. */
oct_status oct_value_copy(const oct_value *from, oct_arena *arena, oct_value **out,
                          oct_err *err) OCT_MUST_CHECK;

/* Lays `over` on `under`: members that are maps in both merge, any other member replaces or is
 * added. Both are maps; `under` is changed, `over` is copied. */
oct_status oct_value_merge(oct_value *under, const oct_value *over, oct_arena *arena,
                           oct_err *err) OCT_MUST_CHECK;

/* The tree as JSON text on one line, numbers so that they read back to the same value.
 * Errors: OCT_E_CONFIG for a number that is not finite. */
oct_status oct_value_to_json(const oct_value *value, oct_arena *arena, const char **out,
                             oct_err *err) OCT_MUST_CHECK;

#endif
