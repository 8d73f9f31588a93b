/* CONFIG... and key=value words of a command line, and the configuration that they make. */
#ifndef OCT_CLI_JOB_H
#define OCT_CLI_JOB_H

#include "base/arena.h"
#include "config/config.h"

enum { OCT_JOB_MAX_WORDS = 256, OCT_JOB_MAX_KEY = 256 };

typedef struct oct_job {
    const char *files[OCT_JOB_MAX_WORDS];
    int file_count;
    const char *words[OCT_JOB_MAX_WORDS];
    int word_count;
    const char *dashed; /* the first word written with --, for torchtitan jobs only; or NULL */
    oct_arena arena;    /* of the configuration's strings, and of words that were put together */
    oct_config config;
    const char *stage; /* of oct_job_read that was reached: parse, resolve */
} oct_job;

/* Takes argv[*i]: `key=value` is a word, anything else a file, also one with a / before its first
 * =. A torchtitan job has its words also as `--section.key value` and `--section.key=value`; a
 * boolean key alone means true, and with `no_` before its name false; *i moves over a value.
 * Returns 0, or prints a usage error and returns -1. */
int oct_job_argument(oct_job *job, const char *command, int argc, char **argv, int *i);

/* 0 if there is a file; else prints a usage error and returns its exit code. */
int oct_job_missing(const oct_job *job, const char *command);

/* Reads and resolves the configuration for `ranks` ranks; prints the overrides to stderr as they
 * were understood. */
oct_status oct_job_read(oct_job *job, int ranks, oct_err *err) OCT_MUST_CHECK;

/* As oct_job_read; returns 0 or an exit code, the error already printed. */
int oct_job_load(oct_job *job, const char *command, int ranks);
void oct_job_release(oct_job *job);

#endif
