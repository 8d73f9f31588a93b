/* One run, as the files of the trainer see it: how it starts, and how it steps. Internal. */
#ifndef OCT_TRAINER_TRAINER_H
#define OCT_TRAINER_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "optim/schedule.h"
#include "trainer/ranks.h"
#include "trainer/run_dir.h"
#include "trainer/train.h"

/* What a rank tells of a step before its losses and its tokens per expert. */
enum { PEAK_WORD, FMA_WORD, STEP_WORDS };

/* One run. Everything in here has one owner: oct_train. */
typedef struct oct_trainer {
    const oct_config *config;
    const oct_train_options *options;
    oct_ranks ranks;
    oct_run_dir dir; /* only rank 0 holds it */
    oct_build build;
    oct_dataset *data, *validation;
    oct_arena memory;       /* configuration text, identity, batch buffers */
    int32_t *ids, *targets; /* one micro-batch */
    double *sums;           /* of the losses of this rank's micro-batches in a step */
    int64_t *own, *all;     /* what ranks tell each other of a pass: a share, [ranks][share] */
    oct_identity identity;
    char config_hash[20];
    oct_metrics *metrics; /* rank 0 */
    oct_trace_file *trace_file;
    oct_checkpoint_writer *writer;
    oct_item_list items;
    oct_lr_schedule schedule;
    oct_train_state state;
    int64_t *peaks;            /* [ranks] bytes, up to the last step */
    int64_t peak_memory_bytes; /* of the largest rank */
    int64_t last_step;         /* where this run ends */
    int64_t saved_step;        /* newest checkpoint that was reported saved, -1 if none */
    bool saving;               /* a checkpoint is on its way */
    bool last_save_failed;
    int signal;    /* that stops the run, on every rank; 0: none so far */
    bool row_lost; /* metrics could not be written; the state is that of a whole step */
    bool stepping; /* the first step has begun */
    bool reserved; /* the first step has shown how much memory a step needs */
} oct_trainer;

/* One line of the run, told by rank 0; sink may be NULL. */
void oct_trainer_tell(const oct_trainer *t, void (*sink)(void *arg, const char *line),
                      const char *fmt, ...) OCT_PRINTF(3, 4);

/* A checkpoint failure keeps its text and gets the code that callers tell it by. */
oct_status oct_trainer_checkpoint_status(oct_status status, oct_err *err);

/* Micro-batches of a validation on each rank. */
int64_t oct_trainer_validation_steps(const oct_trainer *t);

/* From the configuration to a model that can take its next step. Collective, also in its failures
 * but for those of the build, which the caller tells to the others. */
oct_status oct_trainer_set_up(oct_trainer *t, oct_err *err) OCT_MUST_CHECK;

/* Also after a set_up that failed. Not collective. */
void oct_trainer_tear_down(oct_trainer *t);

#endif
