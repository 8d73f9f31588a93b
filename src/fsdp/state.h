/* What the parts of sharding share: the state, private to this folder. */
#ifndef OCT_FSDP_STATE_H
#define OCT_FSDP_STATE_H

#include "fsdp/fsdp.h"

enum { OCT_FSDP_PHASES = 2, OCT_FSDP_NO_WINDOW = -1 };

/* How one physical tensor of a parameter travels in one phase. */
typedef struct flow {
    const char *name;
    oct_tensor shard;    /* this rank's part: dtype and shape, no data */
    const size_t *bytes; /* of each rank's part */
    size_t total_bytes;
    int64_t total_rows; /* of dim 0, all parts together */
} flow;

typedef struct traffic {
    int count;
    flow flows[OCT_FSDP_MAX_TENSORS];
} traffic;

typedef struct fsdp_param {
    oct_param *param;
    const oct_fsdp_extension *extension; /* NULL: one plain tensor */
    void *self;
    oct_tensor shard;            /* plain: this rank's rows */
    oct_weight_storage *logical; /* extended: what post made */
    traffic traffic[OCT_FSDP_PHASES];
    const int64_t *counts; /* elements of the gradient that each rank folds */
    /* Replicated: first of them in the whole gradient, and the bytes of each rank's sums. */
    int64_t own_begin;
    const size_t *sum_bytes;
    /* The gather in progress. */
    oct_fsdp_tensors outputs;
    oct_fsdp_metadata metadata;
} fsdp_param;

typedef struct fsdp_unit {
    oct_fsdp_unit given;
    int window;
    bool is_gathered;
    bool has_all; /* what the backward pass needs, too */
} fsdp_unit;

/* Memory of the unit that is gathered into it. */
typedef struct window {
    oct_arena tensors;
    int64_t unit; /* OCT_FSDP_NO_WINDOW: free */
} window;

struct oct_fsdp {
    oct_fsdp_options options;
    oct_arena memory;
    fsdp_param *params; /* in tree order */
    int64_t param_count;
    fsdp_unit *units;
    window *windows;
    int64_t window_count;
    oct_comm_part *parts; /* of the unit with most tensors */
    oct_unit_hooks hooks;
    void *staging; /* one gradient of a whole parameter in reduce_dtype */
    const oct_param *open;
    bool is_sealed;
};

/* Zeroed, from fsdp->memory; *(T **)out. */
oct_status oct_fsdp_array(oct_fsdp *fsdp, int64_t count, size_t size, void *out,
                          oct_err *err) OCT_MUST_CHECK;

/* Is the unit released between its forward and backward pass? */
static inline bool oct_fsdp_reshards(const oct_fsdp *fsdp, const fsdp_unit *unit)
{
    return fsdp->options.reshard_after_forward && !unit->given.is_last;
}

/* --- traffic.c ------------------------------------------------------------------------------- */

/* The physical tensors of this rank's shard for one phase; p->metadata is what post gets. */
oct_status oct_fsdp_collect(const oct_fsdp *fsdp, fsdp_param *p, const fsdp_unit *unit,
                            oct_fsdp_phase phase, oct_fsdp_tensors *out,
                            oct_err *err) OCT_MUST_CHECK;

/* Compares the shards of all ranks and fills traffic, counts, own_begin and sum_bytes of every
 * parameter. Collective. Errors: OCT_E_SHAPE naming the parameter and both ranks. */
oct_status oct_fsdp_plan(oct_fsdp *fsdp, oct_err *err) OCT_MUST_CHECK;

/* A tensor that is not what the ranks compared would be put together from the wrong bytes. */
oct_status oct_fsdp_check_shard(const fsdp_param *p, const traffic *planned,
                                const oct_fsdp_tensors *tensors, oct_err *err) OCT_MUST_CHECK;

#endif
