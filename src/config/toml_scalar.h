/* The parts of TOML that hold no other values: strings, numbers, booleans, dates. For toml.c. */
#ifndef OCT_CONFIG_TOML_SCALAR_H
#define OCT_CONFIG_TOML_SCALAR_H

#include <stdbool.h>

#include "config/toml.h"

/* Where the reader stands. */
typedef struct oct_toml_cursor {
    const char *at, *end;
    int line;         /* 1-based */
    const char *mark; /* a place on this line, and the column there: long lines are counted once */
    int mark_column;
    const char *file;
    oct_arena *arena;
} oct_toml_cursor;

/* The byte at the cursor, or 0 at the end (the text holds no NUL). */
static inline char oct_toml_peek(const oct_toml_cursor *c)
{
    return c->at < c->end ? *c->at : '\0';
}

/* Steps over a newline, LF or CRLF, if one is here. */
bool oct_toml_newline(oct_toml_cursor *c);

/* Moves the mark to the cursor; its column, 1-based, in characters. */
int oct_toml_column(oct_toml_cursor *c);

/* "cannot read TOML: FOUND, REQUIRED (file:line:column)" at the cursor. */
oct_status oct_toml_refuse(const oct_toml_cursor *c, const char *found, const char *required,
                           oct_err *err);

/* A string of any of the four forms at its opening quote; keys have no multi-line forms. */
oct_status oct_toml_string(oct_toml_cursor *c, bool is_key, const char **out, oct_err *err);

/* A number, boolean or date: value->text and what it means. */
oct_status oct_toml_plain(oct_toml_cursor *c, oct_value *value, oct_err *err);

#endif
