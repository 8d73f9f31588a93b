/* The torchtitan dialect: *.toml jobs, read into the same keys as YAML. Keys and what becomes of
 * them: docs/config-toml.md. */
#ifndef OCT_CONFIG_TORCHTITAN_H
#define OCT_CONFIG_TORCHTITAN_H

#include <stdbool.h>

#include "config/config.h"
#include "config/value.h"

/* *yes if every file ends in .toml, in capitals or not. Errors: OCT_E_CONFIG for files of both
 * dialects. */
oct_status oct_torchtitan_is_dialect_of(const char *const *files, int count, bool *yes,
                                        oct_err *err) OCT_MUST_CHECK;

/* Whether the value of this key may be left out on the command line: `--compile.enable`. */
bool oct_torchtitan_is_flag(const char *path);

/* Reads the files over each other and over torchtitan's defaults, then `section.key=value` words
 * (lists as A,B,C). *keys: the map of octet's keys that this means, for the reader of
 * config/schema.c; *job: its converters. Notes as in oct_config_load, and one "warning: ..." for
 * each key that is set and has no effect. Errors: OCT_E_CONFIG with file:line. */
oct_status oct_torchtitan_read(const char *const *files, int file_count, const char *const *words,
                               int word_count, oct_arena *arena, oct_config_note note,
                               void *note_arg, const oct_value **keys, oct_torchtitan **job,
                               oct_err *err) OCT_MUST_CHECK;

#endif
