/* Where a run stands, and its way into a checkpoint and back. */
#ifndef OCT_TRAINER_STATE_H
#define OCT_TRAINER_STATE_H

#include <stdint.h>

#include "checkpoint/checkpoint.h"
#include "data/dataset.h"
#include "trainer/build.h"

/* Everything besides weights, moments and buffers that the next step depends on. */
typedef struct oct_train_state {
    int64_t step;              /* successful optimizer steps */
    int64_t attempt;           /* steps tried */
    int64_t samples;           /* sequences consumed: the sampler's position */
    int64_t tokens;            /* target tokens seen */
    int64_t consecutive_skips; /* non-finite steps in a row */
} oct_train_state;

/* What a run must share with a checkpoint that it goes on from. Strings are borrowed or live in the
 * arena given to oct_identity_make. */
typedef struct oct_identity {
    const char *model_json; /* structure of the model, one JSON object */
    const char *format;     /* "mxfp8_e4m3", "hif8", or the activation dtype */
    const char *tokenizer;
    int64_t global_batch_size;
    int64_t micro_batch_size;
    int64_t seq_length;
    int64_t seed;
    int64_t shuffle;
    uint64_t data_fingerprint;
} oct_identity;

/* data may be NULL where only weights are wanted. */
oct_status oct_identity_make(const oct_build *build, const oct_dataset *data, oct_arena *arena,
                             oct_identity *out, oct_err *err) OCT_MUST_CHECK;

/* Fills `list` with weights, moments, buffers, state and identity. */
oct_status oct_state_items(const oct_build *build, const oct_train_state *state,
                           const oct_identity *identity, oct_item_list *list,
                           oct_err *err) OCT_MUST_CHECK;

/* Compares identities and restores everything; compute forms are refreshed afterwards by the
 * caller. with_moments false takes only the weights, needs only the same model, and leaves *state
 * at step 0. Errors: OCT_E_CHECKPOINT naming what differs with both values. */
oct_status oct_state_restore(oct_build *build, const oct_checkpoint *checkpoint,
                             const oct_identity *identity, bool with_moments,
                             oct_train_state *state, oct_err *err) OCT_MUST_CHECK;

#endif
