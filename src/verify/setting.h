/* Training runs as the cases vary them: the fixed dimensions of chapter 17.1, and what is saved. */
#ifndef OCT_VERIFY_SETTING_H
#define OCT_VERIFY_SETTING_H

#include "verify/judge.h"
#include "verify/run.h"

typedef struct oct_verify_setting {
    oct_verify_format format;
    bool keeps;       /* reshard_after_forward: false */
    bool recompute;   /* activation_checkpoint: full */
    bool fallback;    /* fallback_to_unsharded, with equal shards, so that it replicates */
    int accumulation; /* 0: 1 */
    int ranks;        /* 0: --ranks */
    int64_t steps;    /* where the run ends; its schedule is that of the configuration */
    int64_t save_at;  /* a checkpoint after this step, beside the last; 0: no checkpoint is kept */
    const oct_verify_run *resumes; /* the run whose checkpoint `resume_at` this one continues */
    int64_t resume_at;
} oct_verify_setting;

/* Trains it, or finds the same run. Errors: as oct_verify_train. */
oct_status oct_verify_train_setting(oct_verify *v, json_t *result,
                                    const oct_verify_setting *setting, const oct_verify_run **run,
                                    oct_err *err) OCT_MUST_CHECK;

/* Trains it, checks that it trained, judges its traces and names metrics, trace and log as
 * evidence. *ok: it trained, so that its files are there. */
oct_status oct_verify_judge_setting(oct_verify *v, json_t *result,
                                    const oct_verify_setting *setting, unsigned judges,
                                    const oct_verify_run **run, bool *ok,
                                    oct_err *err) OCT_MUST_CHECK;

/* The main run of a format: 20 steps, a checkpoint, 5 more (quick: 2 and 1; another model
 * than the scaled-down one: 1 and 1). */
oct_verify_setting oct_verify_main_setting(const oct_verify *v, oct_verify_format format);

/* 5 steps (another model: 2); the main run itself if quick, so that fewer are made. */
oct_verify_setting oct_verify_short_setting(const oct_verify *v, oct_verify_format format);

/* Two runs have the same records: loss, gradient norm, lr, tokens and expert load of every step of
 * `b` are those of the same step of `a`, bit by bit. Adds a check. */
bool oct_verify_check_same_records(json_t *result, const char *what, const oct_verify_run *a,
                                   const oct_verify_run *b);

/* Runs this program with the words (ends with NULL), stdout to OUT/logs/NAME.json, and reads that.
 * Errors: OCT_E_CONFIG with the child's message if its exit code is not 0; OCT_E_DATA for no JSON.
 */
oct_status oct_verify_ask(oct_verify *v, const char *name, const char *const *words, json_t **out,
                          oct_err *err) OCT_MUST_CHECK;

/* The same for text: the first line that it printed. */
oct_status oct_verify_ask_line(oct_verify *v, const char *name, const char *const *words,
                               char *line, size_t size, oct_err *err) OCT_MUST_CHECK;

/* What octet plan --json says of a configuration in this format, with more words (up to NULL; NULL:
 * none), one micro-batch a step as where it trains. Errors: as oct_verify_ask. */
oct_status oct_verify_ask_plan(oct_verify *v, oct_verify_format format, const char *config,
                               int ranks, const char *const *more, json_t **out,
                               oct_err *err) OCT_MUST_CHECK;

#endif
