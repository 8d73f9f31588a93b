/* A training run: build, resume, step loop, validation, checkpoints. */
#ifndef OCT_TRAINER_TRAIN_H
#define OCT_TRAINER_TRAIN_H

#include "config/config.h"
#include "trainer/metrics.h"
#include "trainer/state.h"

/* Sees a run go by and says nothing back. Called on the training thread, but for `warning`, which
 * the checkpoint writer may call. Of several ranks only rank 0 tells; `gradients` and `stepped` are
 * called on each. Any member may be NULL. */
typedef struct oct_train_observer {
    void *arg;
    void (*message)(void *arg, const char *line); /* what was built, where it resumed */
    void (*warning)(void *arg, const char *line);
    void (*built)(void *arg, const oct_build *build); /* once, before the first step */
    void (*row)(void *arg, const oct_step_metrics *row, int64_t last_step);
    void (*saved)(void *arg, int64_t step);
    /* After the backward pass of a step, before its gradients are judged: for tests. */
    void (*gradients)(void *arg, oct_build *build, const oct_train_state *state);
    /* After a step, successful or not: for tests. */
    void (*stepped)(void *arg, oct_build *build, const oct_train_state *state);
} oct_train_observer;

typedef struct oct_train_options {
    const char *run_dir;
    const char *resume; /* NULL, "latest", "none" or "step-N" */
    oct_train_observer observer;
    oct_comm *comm; /* this rank of a run on several; NULL: one rank. Each rank calls oct_train
                       with the same configuration, resolved for their number */
} oct_train_options;

/* How a run ended. */
typedef struct oct_train_result {
    oct_train_state state;
    /* A failed run: the stage of the build that it did not pass (oct_stage_name), "step", or what
     * else this rank did, as in "opening data". */
    const char *failed_at;
    int signal;         /* number of the signal that stopped it, 0 if none */
    bool nothing_to_do; /* it was already complete */
    bool
        last_save_failed; /* checkpoint.on_failure: continue, and the last one could not be saved */
} oct_train_result;

/* Runs to the end, a signal or an error, on all ranks alike: loss, gradient norm and weights have
 * the same bits for every number of ranks. `config` must be resolved. A failure is that of the rank
 * where it began, err->rank, on every rank; the comm may be broken then. Errors keep their code;
 * those of checkpoints come as OCT_E_CHECKPOINT (OCT_E_NOMEM stays). A run stopped by a signal
 * returns OCT_OK with result->signal set, after its checkpoint was saved. */
oct_status oct_train(const oct_config *config, const oct_train_options *options,
                     oct_train_result *result, oct_err *err) OCT_MUST_CHECK;

#endif
