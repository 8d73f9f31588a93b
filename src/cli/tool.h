/* What the commands that work on tensor files share: where they compute and how they read words. */
#ifndef OCT_CLI_TOOL_H
#define OCT_CLI_TOOL_H

#include "cli/cli.h"
#include "kernels/exec.h"

/* Kernels, threads and memory of one command. Owner of its arenas. */
typedef struct oct_tool {
    oct_arena memory, scratch;
    oct_kernels kernels;
    oct_exec exec;
} oct_tool;

/* Errors: those of oct_isa_choose; close it all the same. */
oct_status oct_tool_open(oct_tool *tool, oct_err *err) OCT_MUST_CHECK;
void oct_tool_close(oct_tool *tool);

/* An option with a value; `word` is NULL until it was given. */
typedef struct oct_tool_option {
    const char *option;
    const char **value;
} oct_tool_option;

/* Sorts argv[1..] into options with a value, one flag (NULL: none) and exactly `count` positional
 * arguments. "-" is a positional argument. 0, or -1 with a usage error. */
int oct_tool_arguments(const char *command, int argc, char **argv, const oct_tool_option *options,
                       size_t option_count, const char *flag, bool *flag_value,
                       const char **positional, int count);

/* The index of `text` in `words` (`count` of them), or -1 with a usage error. */
int oct_tool_word(const char *command, const char *option, const char *text,
                  const char *const *words, int count);

/* "3,0,5" (numbers of rows) as the ends 3, 3, 8 in `arena`; text NULL gives no groups.
 * Errors: OCT_E_CONFIG, OCT_E_NOMEM. */
oct_status oct_tool_groups(const char *text, oct_arena *arena, oct_groups *groups,
                           oct_err *err) OCT_MUST_CHECK;

/* What an option that is required but absent is told. */
int oct_tool_missing(const char *command, const char *what);

#endif
