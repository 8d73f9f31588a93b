/* The extension of a sharded 8-bit weight: which physical tensors a gather takes, and the whole
 * weight that it makes of them. */
#ifndef OCT_LIFECYCLE_GATHERED_WEIGHT_H
#define OCT_LIFECYCLE_GATHERED_WEIGHT_H

#include "fsdp/extension.h"
#include "low_precision/weight.h"

/* What the extension works on. */
typedef struct oct_gathered_weight {
    const oct_param *param;          /* whole shape */
    const oct_weight_storage *shard; /* of this rank */
    oct_arena *arena;                /* for the record of the whole weight, made once */
    bool narrow_backward; /* after a reshard the backward pass gets only what dgrad reads */
} oct_gathered_weight;

/* `self` is an oct_gathered_weight. post errors: OCT_E_SHAPE naming weight and tensor if number,
 * order, dtype or shape are not those of the metadata; OCT_E_COMM naming the weight and both values
 * if ranks hold different copies of a scale that is one for all. */
extern const oct_fsdp_extension oct_gathered_weight_extension;

#endif
