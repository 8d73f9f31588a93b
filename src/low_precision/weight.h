/* A quantized weight: 8-bit storage derived from an FP32 master, alive across micro-batches, never
 * in a checkpoint. Dense [N, K]: row blocks run along K (fprop), col blocks along N (dgrad).
 * Stacked experts, stored [E, out, in], are seen as [E, in, out]: col blocks run along `in`
 * (fprop), row blocks along `out` (dgrad). */
#ifndef OCT_LOW_PRECISION_WEIGHT_H
#define OCT_LOW_PRECISION_WEIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "low_precision/config.h"
#include "low_precision/format.h"
#include "module/module.h"
#include "module/run.h"

/* Opaque in module/module.h. Fields are read by low_precision and lifecycle only. */
struct oct_weight_storage {
    const char *fqn; /* of the parameter */
    const oct_low_precision_format *format;
    const oct_low_precision_recipe *recipe;
    oct_dtype logical_dtype;
    bool requires_grad;
    int ndim;
    int64_t shape[3];
    int tensor_count;
    oct_physical_tensor tensors[OCT_WEIGHT_MAX_TENSORS];
    float *amax; /* [scale count] of the last refresh; NULL without FP32 scales */
    int64_t refresh_count;
    /* Panels of each orientation for the right side, made on first use after a refresh. Not for a
     * weight whose products pack it themselves, one expert after the other, as those of every
     * gathered weight do: an orientation that is read once costs no memory there. */
    bool packs_at_use;
    oct_arena panel_arena;
    const oct_panels **panels[2];
};

/* Bytes of physical storage of a weight of this shape. */
int64_t oct_weight_bytes(const oct_low_precision_format *format, int ndim, const int64_t *shape);

/* Of these, the bytes that fprop reads: one orientation, or all where both share them. */
int64_t oct_weight_fprop_bytes(const oct_low_precision_format *format, int ndim,
                               const int64_t *shape);

/* Makes the storage of the rows of `param` that this rank owns in `arena` (not yet readable:
 * refresh it). The panels have heap memory of their own: oct_weight_release. logical_dtype: the
 * activation dtype. */
oct_status oct_weight_create(oct_arena *arena, const oct_low_precision_policy *policy,
                             const oct_param *param, oct_dtype logical_dtype,
                             oct_weight_storage **weight, oct_err *err) OCT_MUST_CHECK;
void oct_weight_release(oct_weight_storage *weight);

/* A storage without tensors for the whole weight of `rows` rows of which `shard` is a part: a
 * gather gives it tensors, for as long as its unit is open. */
oct_status oct_weight_create_gathered(oct_arena *arena, const oct_weight_storage *shard,
                                      int64_t rows, oct_weight_storage **weight,
                                      oct_err *err) OCT_MUST_CHECK;

/* Drops the tensors that were gathered before. */
void oct_weight_reopen(oct_weight_storage *gathered);

/* How many amax values ranks must agree on before a refresh: 1 for a dense HiF8 weight, else 0
 * (block scales; expert scales, whose experts are never split). */
int64_t oct_weight_shared_amax_count(const oct_weight_storage *weight);

/* amax of a shard of the master for a MAX over ranks; NaN comes back as +Inf, which MAX orders. */
oct_status oct_weight_local_amax(const oct_exec *exec, const oct_weight_storage *weight,
                                 const float *master, float *amax, oct_err *err) OCT_MUST_CHECK;

/* Rewrites the storage from the FP32 master, in both orientations. shared_amax: the reduced value
 * of oct_weight_local_amax, or NULL to take the amax of `master`. Counts one refresh, emits one
 * `refresh` event and the `quantize` events of the two weight roles. trace may be NULL. */
oct_status oct_weight_refresh(const oct_exec *exec, oct_trace *trace, oct_weight_storage *weight,
                              const float *master, const float *shared_amax,
                              oct_err *err) OCT_MUST_CHECK;

/* Packs one orientation for the right side unless that was done since the last refresh. The memory
 * is taken once and serves every later refresh. */
oct_status oct_weight_pack(const oct_exec *exec, oct_weight_storage *weight,
                           oct_orientation orientation, oct_err *err) OCT_MUST_CHECK;

/* The experts of a stacked weight as groups of rows of its [E*out, in] view, in `arena`. */
oct_status oct_weight_expert_groups(const oct_weight_storage *weight, oct_arena *arena,
                                    oct_groups *groups, oct_err *err) OCT_MUST_CHECK;

/* The operand of one orientation: pointers into the storage, nothing is copied or requantized.
 * Errors: OCT_E_API if the weight was never refreshed or this orientation was not gathered. */
oct_status oct_weight_select(const oct_weight_storage *weight, oct_orientation orientation,
                             oct_operand *out, oct_err *err) OCT_MUST_CHECK;

/* Packs if needed and selects; packing time counts as matmul. What the products call. */
oct_status oct_weight_use(const oct_run *run, oct_weight_storage *weight,
                          oct_orientation orientation, oct_operand *out,
                          oct_err *err) OCT_MUST_CHECK;

/* Orientation of the weight in the two products that read it. */
oct_orientation oct_weight_fprop_orientation(const oct_weight_storage *weight);
oct_orientation oct_weight_dgrad_orientation(const oct_weight_storage *weight);

#endif
