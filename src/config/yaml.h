/* YAML 1.2 (core schema) to a value tree. No anchors, aliases or tags; one document; a mapping at
 * the top; keys are scalars and appear once. */
#ifndef OCT_CONFIG_YAML_H
#define OCT_CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"
#include "config/value.h"

/* Where a text comes from: a file is a map at the top; the value of a key=value word may be
 * anything, nothing at all is null, and its nodes carry no lines. */
typedef enum oct_yaml_source { OCT_YAML_FILE, OCT_YAML_WORD } oct_yaml_source;

/* Parses `text`. `file` names the file, or is the whole word, in messages and nodes; it is borrowed
 * by the tree. A plain scalar is null, bool, int or float by the core schema (2e-5 and .5e-4 are
 * floats, 1_000 is a string, an integer beyond 64 bits is an error); quoted and block scalars are
 * strings. Errors: OCT_E_CONFIG with file:line:column. */
oct_status oct_yaml_parse(const char *text, size_t bytes, const char *file, oct_yaml_source source,
                          oct_arena *arena, oct_value **out, oct_err *err) OCT_MUST_CHECK;

/* Reads and parses a file. Errors: OCT_E_IO when it cannot be read, else as oct_yaml_parse. */
oct_status oct_yaml_read_file(const char *path, oct_arena *arena, oct_value **out,
                              oct_err *err) OCT_MUST_CHECK;

/* Whether a plain scalar of this text would be a string: then it needs no quotes. */
bool oct_yaml_is_plain_string(const char *text);

#endif
