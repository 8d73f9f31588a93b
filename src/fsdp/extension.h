/* The protocol between sharding and a parameter that computes in several physical tensors. Source:
 * design document, chapters 9 and 13.5. Sharding knows neither formats nor orientations: it gathers
 * what it is given and gives back what it gathered. */
#ifndef OCT_FSDP_EXTENSION_H
#define OCT_FSDP_EXTENSION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "module/module.h"
#include "tensor/tensor.h"

typedef enum oct_fsdp_phase { OCT_FSDP_FORWARD, OCT_FSDP_BACKWARD } oct_fsdp_phase;

const char *oct_fsdp_phase_name(oct_fsdp_phase phase); /* "forward", "backward" */

/* Why the gather happens. */
typedef struct oct_fsdp_context {
    oct_fsdp_phase phase;
    bool reshard_after_forward;
    const char *param_fqn;
} oct_fsdp_context;

enum { OCT_FSDP_MAX_TENSORS = 4, OCT_FSDP_MAX_METADATA = 64 };

/* The physical tensors of one gather, in a fixed order. */
typedef struct oct_fsdp_tensors {
    int count;
    const char *names[OCT_FSDP_MAX_TENSORS]; /* for traces and messages; static strings */
    oct_tensor tensors[OCT_FSDP_MAX_TENSORS];
} oct_fsdp_tensors;

/* What pre has to tell post: bytes that nobody else reads. */
typedef struct oct_fsdp_metadata {
    size_t bytes;
    unsigned char data[OCT_FSDP_MAX_METADATA];
} oct_fsdp_metadata;

/* Both functions are required. Stateless: everything is in `self`. */
typedef struct oct_fsdp_extension {
    /* The tensors of this rank's shard that this phase needs, at least 1-D, and the metadata. Their
     * number, order, dtypes and inner dims are the same on all ranks and in every step; dim 0 is
     * this rank's part. */
    oct_status (*pre_all_gather)(void *self, const oct_fsdp_context *context,
                                 oct_fsdp_tensors *tensors, oct_fsdp_metadata *metadata,
                                 oct_err *err);
    /* outputs: the same tensors, those of all ranks one after another along dim 0, in memory that
     * lives until the unit is resharded. *logical is NULL the first time and what was returned then
     * later: the weight that products read. Checks number, order, dtypes and shapes. */
    oct_status (*post_all_gather)(void *self, const oct_fsdp_tensors *outputs,
                                  const oct_fsdp_metadata *metadata, oct_weight_storage **logical,
                                  oct_err *err);
} oct_fsdp_extension;

#endif
