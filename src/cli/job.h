/* CONFIG... and key=value words of a command line, and the configuration that they make. */
#ifndef OCT_CLI_JOB_H
#define OCT_CLI_JOB_H

#include "base/arena.h"
#include "config/config.h"

enum { OCT_JOB_MAX_WORDS = 256 };

typedef struct oct_job {
    const char *files[OCT_JOB_MAX_WORDS];
    int file_count;
    const char *words[OCT_JOB_MAX_WORDS];
    int word_count;
    oct_arena arena; /* of the configuration's strings */
    oct_config config;
} oct_job;

/* Takes one plain argument: `key=value` is a word, anything else a file. Returns 0, or prints a
 * usage error and returns -1. */
int oct_job_argument(oct_job *job, const char *command, const char *argument);

/* 0 if there is a file; else prints a usage error and returns its exit code. */
int oct_job_missing(const oct_job *job, const char *command);

/* Reads and resolves the configuration for `ranks` ranks; prints the overrides to stderr as they
 * were understood. */
oct_status oct_job_read(oct_job *job, int ranks, oct_err *err) OCT_MUST_CHECK;

/* As oct_job_read; returns 0 or an exit code, the error already printed. */
int oct_job_load(oct_job *job, const char *command, int ranks);
void oct_job_release(oct_job *job);

#endif
