/* A configuration file and the chain of its bases, whatever language they are in. */
#ifndef OCT_CONFIG_CONFIG_FILES_H
#define OCT_CONFIG_CONFIG_FILES_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"
#include "config/value.h"

/* oct_yaml_read_file or oct_toml_read_file. */
typedef oct_status (*oct_config_parse)(const char *path, oct_arena *arena, oct_value **out,
                                       oct_err *err);

/* Gets one file's keys, without `base`. */
typedef oct_status (*oct_config_take)(void *arg, const oct_value *keys, oct_err *err);

/* Whether the name ends in .toml, in capitals or not: a file of the torchtitan dialect. */
bool oct_config_is_toml(const char *path);

/* The error of two files of both dialects; `where` names the second one, "" for the command line.
 */
oct_status oct_config_mixed(const char *first, const char *second, const char *where, oct_err *err);

/* Reads `path`, and before it what its `base` names (relative to the folder of the file that names
 * it), and so on; hands each file to `take`, the innermost base first. Errors: those of `parse` and
 * `take`, OCT_E_CONFIG for a chain that is a cycle, too long or of both dialects. */
oct_status oct_config_read_chain(const char *path, oct_config_parse parse, oct_arena *arena,
                                 oct_config_take take, void *arg, oct_err *err) OCT_MUST_CHECK;

#endif
