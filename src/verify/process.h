/* Other programs: run one, keep what it prints, end it when it takes too long. */
#ifndef OCT_VERIFY_PROCESS_H
#define OCT_VERIFY_PROCESS_H

#include <signal.h>
#include <stdbool.h>

#include "base/status.h"

/* What to run. Everything is borrowed for the call. */
typedef struct oct_process_options {
    const char *const *argv;        /* ends with NULL; argv[0] is looked for in PATH */
    const char *const *environment; /* "NAME=VALUE" on top of this process's own, ends with NULL;
                                       NULL: nothing */
    const char *folder;             /* working directory; NULL: this process's */
    const char *stdout_path;        /* files, replaced; NULL: nothing is kept */
    const char *stderr_path;
    double timeout_seconds; /* 0: none. Then SIGTERM to the process group, SIGKILL 5 s later */
    const volatile sig_atomic_t *stop; /* not 0: end it as at a timeout; NULL: never */
} oct_process_options;

typedef struct oct_process_result {
    int exit_code; /* -1 if a signal ended it */
    int signal;    /* 0 if it exited */
    bool timed_out, stopped;
    double seconds;
} oct_process_result;

/* Runs it in a process group of its own and waits for its end. A program that fails is no error
 * here. Errors: OCT_E_IO if it cannot be started or a file cannot be opened, OCT_E_NOMEM. */
oct_status oct_process_run(const oct_process_options *options, oct_process_result *result,
                           oct_err *err) OCT_MUST_CHECK;

#endif
