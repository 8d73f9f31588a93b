/* octet verify: the acceptance matrix of chapters 16.6 and 17 of the design document. Every case
 * trains through the production trainer, as a child process of this same program, and judges only
 * what that wrote: trace-R.jsonl, metrics.jsonl, config.yaml, checkpoints, exit code, stderr. */
#ifndef OCT_VERIFY_VERIFY_H
#define OCT_VERIFY_VERIFY_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

typedef enum oct_verify_model {
    OCT_VERIFY_SCALED, /* configs/verify.yaml */
    OCT_VERIFY_SLICE,  /* configs/slice.yaml: two layers of the 16B in their true width */
    OCT_VERIFY_16B,    /* configs/deepseek_v3_16b */
    OCT_VERIFY_MODEL_COUNT
} oct_verify_model;
extern const char *const oct_verify_models[OCT_VERIFY_MODEL_COUNT];

/* The three formats of every comparison; `case` of --config FILE --case. */
typedef enum oct_verify_format {
    OCT_VERIFY_BF16,
    OCT_VERIFY_MXFP8,
    OCT_VERIFY_HIF8,
    OCT_VERIFY_FORMAT_COUNT
} oct_verify_format;
extern const char *const oct_verify_formats[OCT_VERIFY_FORMAT_COUNT]; /* bf16, mxfp8, hif8 */

enum { OCT_VERIFY_MAX_WORDS = 48, OCT_VERIFY_NAME_BYTES = 160 };

/* A training run as a case asks for it. Runs with equal config, ranks, words and turn are made
 * once.
 */
typedef struct oct_verify_job {
    const char *name; /* of its folder OUT/runs/NAME, unless the same run is there already */
    oct_verify_format format;
    const char *config;                      /* NULL: that of the model */
    int ranks;                               /* 0: --ranks */
    bool is_silent;                          /* no trace: for what is timed */
    bool is_bare;                            /* BF16 without a word of low_precision */
    int turn;                                /* of what is timed: each turn is a run of its own */
    bool keeps_checkpoints;                  /* else they are removed when the run has ended */
    const char *words[OCT_VERIFY_MAX_WORDS]; /* more `key=value`, up to NULL */
} oct_verify_job;

typedef struct oct_verify_trace oct_verify_trace;

/* A run that was made. Owned by the context. */
typedef struct oct_verify_run {
    char name[OCT_VERIFY_NAME_BYTES];
    char dir[OCT_PATH_BYTES]; /* the run directory */
    char stderr_path[OCT_PATH_BYTES];
    char *key; /* config, ranks and words */
    oct_verify_format format;
    int ranks;
    int exit_code; /* -1: a signal or the time limit ended it */
    bool has_trace;
    double seconds;            /* of the whole child process */
    json_t *metrics;           /* rows of kind "train", in order */
    json_t *report;            /* its row in the report's "runs" */
    oct_verify_trace **traces; /* read when first asked for */
} oct_verify_run;

typedef struct oct_verify {
    /* Set by the caller. */
    const char *program; /* this program */
    const char *commit;  /* that it was built from */
    const char *mpirun;  /* the launcher; "": none */
    const char *out;     /* directory of the evidence: an absolute path; it exists */
    oct_verify_model model;
    int ranks;                     /* of a run unless its case needs another number */
    bool quick;                    /* a covering handful instead of every combination, fewer steps;
                                      speed is reported without a verdict */
    const char *config;            /* --config: in place of the model's own; or NULL */
    oct_verify_format format;      /* with `config`: --case */
    void (*say)(const char *line); /* progress; may be NULL */
    const volatile sig_atomic_t *stop;
    /* Filled on the way. */
    json_t *report; /* the whole report; "cases" and "runs" grow */
    oct_verify_run **runs;
    int run_count;
} oct_verify;

/* Runs one case: adds checks, evidence and names of runs to `result`. A status other than OCT_OK
 * means that the case could not run: it counts as not passed, with err->msg as the reason. */
typedef oct_status (*oct_verify_case_fn)(oct_verify *v, json_t *result, oct_err *err);

typedef struct oct_verify_case {
    const char *id; /* Q3-05 */
    const char *title;
    oct_verify_case_fn run; /* NULL: reported as not_run */
    bool is_standard;       /* runs unless other cases are named */
} oct_verify_case;

extern const oct_verify_case oct_verify_cases[]; /* up to id NULL */

oct_status oct_verify_q3_10(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_q3_11(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_numerics(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;

/* What can be refused before anything is written; `out` is not used. Errors: OCT_E_CONFIG for an
 * unknown id or a --config that cannot be verified; OCT_E_NOMEM, with the GiB found and required,
 * if this machine cannot train the model. */
oct_status oct_verify_check_start(const oct_verify *v, const char *const *ids, int count,
                                  oct_err *err) OCT_MUST_CHECK;

/* Runs the cases named by ids (count 0: all that the options mean), which are known. *passed: every
 * one passed. Writes OUT/report.json and OUT/report.html at the start and after each case; one that
 * has not ended stands there as not_run. Errors: OCT_E_INTERRUPTED, OCT_E_IO, OCT_E_NOMEM. */
oct_status oct_verify_all(oct_verify *v, const char *const *ids, int count, bool *passed,
                          oct_err *err) OCT_MUST_CHECK;
void oct_verify_release(oct_verify *v);

/* Makes the directory of the evidence, or empties that of an earlier verification (runs/, logs/,
 * cases/ and the report). It is locked until *lock is closed or the process ends. Errors:
 * OCT_E_CONFIG if it holds anything else; OCT_E_IO, also if another process holds it. */
oct_status oct_verify_open_out(const char *path, int *lock, oct_err *err) OCT_MUST_CHECK;

/* --- what cases are written with ------------------------------------------------------------- */

/* One check of a case: {"what","required","found","ok"}. A case with a check that does not hold has
 * failed; one without any check has too. Returns ok. */
bool oct_verify_check(json_t *result, bool ok, const char *what, const char *required,
                      const char *found, ...) OCT_PRINTF(5, 6);

/* Names a file of OUT/ as evidence of the case; a file that is not there or empty at the end of the
 * case fails it (17.2b). `path` is relative to OUT. */
void oct_verify_evidence(json_t *result, const char *path);

/* Writes evidence to OUT/cases/ID/NAME and names it. */
oct_status oct_verify_evidence_json(oct_verify *v, json_t *result, const char *name,
                                    const json_t *value, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_evidence_text(oct_verify *v, json_t *result, const char *name,
                                    const char *text, oct_err *err) OCT_MUST_CHECK;

/* Trains, or finds the same run made before, and names it in result["runs"]. A run that ends with
 * another exit code than 0 is no error here: see `oct_verify_check_trained`.
 * Errors: OCT_E_IO, OCT_E_NOMEM, OCT_E_INTERRUPTED. */
oct_status oct_verify_train(oct_verify *v, json_t *result, const oct_verify_job *job,
                            const oct_verify_run **run, oct_err *err) OCT_MUST_CHECK;

/* Exit code 0 and `steps` rows with finite loss and gradient norm, none skipped. */
bool oct_verify_check_trained(json_t *result, const oct_verify_run *run, int64_t steps);

/* "environment" of the report: commit, compiler, MPI, CPU, ranks, model. */
json_t *oct_verify_environment(const oct_verify *v);

#endif
