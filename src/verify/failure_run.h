/* Runs a failure rule through the program, and looks at what a run that failed left behind. */
#ifndef OCT_VERIFY_FAILURE_RUN_H
#define OCT_VERIFY_FAILURE_RUN_H

#include <stddef.h>

#include "base/status.h"
#include "verify/failures.h"

enum { OCT_FAILURE_TEXT = 1200, OCT_FAILURE_MAX_ARGUMENTS = 48 };

/* The words that every row on the small model runs with, before its own; up to NULL. Four steps in
 * MXFP8 with a checkpoint after each and a trace, a dense layer and an MoE layer of small widths.
 */
extern const char *const oct_failure_small_words[];

/* The same of a torchtitan job. */
extern const char *const oct_failure_toml_words[];

/* Does a run directory look as after this failure? At stage "step": the rows of the steps before,
 * no checkpoint of a later one, and no high-precision product at a replaced module on any rank; at
 * an earlier stage: no row and no checkpoint. why[0] = '\0' if it does, else what does not. */
oct_status oct_failure_left(const oct_failure *failure, const char *run_dir,
                            char why[OCT_FAILURE_TEXT], oct_err *err) OCT_MUST_CHECK;

/* The text of a row's torchtitan job. Errors: OCT_E_CONFIG for a path that is no UTF-8. */
oct_status oct_failure_job(const oct_failure *failure, const char *base, const char *model,
                           char *out, size_t bytes, oct_err *err) OCT_MUST_CHECK;

/* How to run the program. */
typedef struct oct_failure_program {
    const char *program; /* octet */
    const char *small;   /* configuration of the small model */
    const char *frozen;  /* configs/deepseek_v3_16b/mxfp8.yaml */
    const char *toml;    /* configs/base.toml, as an absolute path */
    const char *model;   /* folder of the small model's config.json, for a torchtitan job */
    const char *folder;  /* an existing one, of this row alone: files and the run directory */
} oct_failure_program;

typedef struct oct_failure_outcome {
    int exit_code;
    char message[OCT_FAILURE_TEXT]; /* its one line of error, without "octet: " */
    char stage[OCT_FAILURE_TEXT];   /* at which it says that it stopped */
    char why[OCT_FAILURE_TEXT];     /* "": as the rule says; else the first thing that is not */
    double seconds;
} oct_failure_outcome;

/* Runs one row: `octet plan` on the 16B, else `octet train`, on several ranks through `octet
 * launch`. Errors: only if it cannot be run: OCT_E_IO, OCT_E_NOMEM. */
oct_status oct_failure_run(const oct_failure_program *program, const oct_failure *failure,
                           oct_failure_outcome *out, oct_err *err) OCT_MUST_CHECK;

#endif
