/* What the commands of `octet` share. Only cli/ prints usage and ends the process. */
#ifndef OCT_CLI_CLI_H
#define OCT_CLI_CLI_H

#include <stdbool.h>

#include "base/status.h"

/* Exit codes of the program. */
enum {
    OCT_EXIT_OK = 0,
    OCT_EXIT_FAILED = 1, /* a check, the capability gate or a kernel failed */
    OCT_EXIT_USAGE = 2,  /* usage or configuration */
    OCT_EXIT_DATA = 3,
    OCT_EXIT_CHECKPOINT = 4,
    OCT_EXIT_NONFINITE = 5,
    OCT_EXIT_COMM = 6,
    OCT_EXIT_NOMEM = 7,
    OCT_EXIT_SIGNAL = 128 /* + signal number, after what was made was saved */
};

/* A command: argv[0] is its name. Returns the exit code. */
typedef int (*oct_command_fn)(int argc, char **argv);

typedef struct oct_command {
    const char *name;
    oct_command_fn run;
    const char *usage; /* arguments, on one line */
    const char *help;  /* one sentence */
} oct_command;

int oct_command_train(int argc, char **argv);
int oct_command_launch(int argc, char **argv);
int oct_command_plan(int argc, char **argv);
int oct_command_verify(int argc, char **argv);
int oct_command_generate(int argc, char **argv);
int oct_command_quantize(int argc, char **argv);
int oct_command_dequantize(int argc, char **argv);
int oct_command_matmul(int argc, char **argv);
int oct_command_explain(int argc, char **argv);
int oct_command_compare(int argc, char **argv);
int oct_command_checkpoint(int argc, char **argv);
int oct_command_bench(int argc, char **argv);
int oct_command_report(int argc, char **argv);

/* The exit code of a failure. */
int oct_exit_code(oct_status status);

/* Prints `start` and `text` to stderr as one line, whatever text holds: what came from outside may
 * have newlines and terminal controls, which are escaped. */
void oct_cli_line(const char *start, const char *text);

/* Lines, failures and usage errors print nothing from here on (or do again): of several ranks that
 * find the same mistake one tells it. */
void oct_cli_mute(bool mute);

/* Prints to stdout at which stage a run ended that failed. */
void oct_cli_stopped(const char *stage);

/* Prints "octet: <message>" to stderr and returns the exit code. */
int oct_cli_fail(oct_status status, const oct_err *err);

/* Prints a usage error and where to find help; returns OCT_EXIT_USAGE. */
int oct_cli_usage(const char *command, const char *fmt, ...) OCT_PRINTF(2, 3);

/* If argv[*i] is `--name VALUE` or `--name=VALUE`, sets *value, steps *i over it and returns 1; a
 * missing value gives -1 and a message; anything else 0. */
int oct_cli_option(const char *command, int argc, char **argv, int *i, const char *name,
                   const char **value);

/* Reads a whole number; 0 on success, else prints a usage error and returns -1. */
int oct_cli_integer(const char *command, const char *name, const char *text, long long low,
                    long long high, long long *out);

#endif
