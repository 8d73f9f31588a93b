#include "lifecycle/gathered_weight.h"

#include <stdbool.h>
#include <string.h>

/* What pre tells post. */
typedef struct description {
    int32_t ndim, count;
    int64_t shape[3]; /* of the whole weight */
    int32_t which[OCT_WEIGHT_MAX_TENSORS];
} description;

_Static_assert(sizeof(description) <= OCT_FSDP_MAX_METADATA, "the metadata has room");

static oct_status pre_all_gather(void *self, const oct_fsdp_context *context,
                                 oct_fsdp_tensors *tensors, oct_fsdp_metadata *metadata,
                                 oct_err *err)
{
    const oct_gathered_weight *weight = self;
    const oct_weight_storage *shard = weight->shard;
    if (shard->refresh_count == 0)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot gather '%s': it was never quantized, one refresh is required",
                        context->param_fqn);
    /* A unit that stays is gathered once for both passes. */
    const bool once = !context->reshard_after_forward;
    const bool backward = context->phase == OCT_FSDP_BACKWARD;
    const bool fprop = once || !backward || !weight->narrow_backward;
    description d = {.ndim = shard->ndim};
    d.count = shard->format->gather(fprop, once || backward, d.which);
    memcpy(d.shape, weight->param->shape, sizeof d.shape);
    tensors->count = d.count;
    for (int i = 0; i < d.count; i++) {
        const oct_physical_tensor *physical = &shard->tensors[d.which[i]];
        tensors->names[i] = physical->name;
        tensors->tensors[i] = physical->tensor;
        if (physical->tensor.ndim == 0) { /* a scalar becomes one per rank */
            tensors->tensors[i].ndim = 1;
            tensors->tensors[i].shape[0] = 1;
        }
    }
    metadata->bytes = sizeof d;
    memcpy(metadata->data, &d, sizeof d);
    return OCT_OK;
}

/* All ranks' copies of one value, folded to one. */
static oct_status fold_copies(const oct_weight_storage *whole, const oct_physical_tensor *physical,
                              const oct_tensor *copies, oct_err *err)
{
    const unsigned char *data = copies->data;
    const size_t bytes = oct_dtype_bytes(copies->dtype);
    for (int64_t r = 1; r < copies->shape[0]; r++) {
        if (memcmp(data, data + (size_t)r * bytes, bytes) == 0)
            continue;
        float first, other;
        memcpy(&first, data, sizeof first);
        memcpy(&other, data + (size_t)r * bytes, sizeof other);
        return OCT_FAIL(err, OCT_E_COMM,
                        "cannot put '%s' together: its %s is %.9g on rank 0 and %.9g on rank %lld, "
                        "the same on every rank is required",
                        whole->fqn, physical->name, (double)first, (double)other, (long long)r);
    }
    return OCT_OK;
}

/* Puts one gathered tensor into its place. */
static oct_status place(oct_weight_storage *whole, oct_physical_tensor *physical,
                        const oct_tensor *gathered, const char *name, oct_err *err)
{
    const oct_tensor *expected = &physical->tensor;
    bool same = gathered->dtype == expected->dtype && strcmp(name, physical->name) == 0;
    if (physical->replicated)
        same = same && gathered->ndim == 1 && gathered->shape[0] >= 1;
    else
        same = same && gathered->ndim == expected->ndim &&
               memcmp(gathered->shape, expected->shape,
                      (size_t)expected->ndim * sizeof expected->shape[0]) == 0;
    if (!same)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot put '%s' together: '%s' of %s and %lld bytes was gathered, '%s' of "
                        "%s and %lld bytes is required",
                        whole->fqn, name, oct_dtype_name(gathered->dtype),
                        (long long)oct_tensor_bytes(gathered), physical->name,
                        oct_dtype_name(expected->dtype), (long long)oct_tensor_bytes(expected));
    if (physical->replicated)
        OCT_TRY(fold_copies(whole, physical, gathered, err));
    physical->tensor.data = gathered->data;
    return OCT_OK;
}

/* Is this what pre said of the weight? */
static bool describes(const description *d, const oct_gathered_weight *weight)
{
    const oct_param *param = weight->param;
    bool same = d->ndim == param->ndim && memcmp(d->shape, param->shape, sizeof d->shape) == 0 &&
                d->count >= 1 && d->count <= weight->shard->tensor_count;
    for (int i = 0; same && i < d->count; i++)
        same = d->which[i] >= 0 && d->which[i] < weight->shard->tensor_count;
    return same;
}

static oct_status post_all_gather(void *self, const oct_fsdp_tensors *outputs,
                                  const oct_fsdp_metadata *metadata, oct_weight_storage **logical,
                                  oct_err *err)
{
    const oct_gathered_weight *weight = self;
    description d;
    if (metadata->bytes != sizeof d)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot put '%s' together: metadata of %zu bytes, %zu are required",
                        weight->param->fqn, metadata->bytes, sizeof d);
    memcpy(&d, metadata->data, sizeof d);
    if (!describes(&d, weight))
        return OCT_FAIL(err, OCT_E_API,
                        "cannot put '%s' together: the metadata describe another weight, those of "
                        "its own gather are required",
                        weight->param->fqn);
    if (outputs->count != d.count)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot put '%s' together: %d tensors were gathered, %d are required",
                        weight->param->fqn, outputs->count, d.count);
    if (!*logical)
        OCT_TRY(oct_weight_create_gathered(weight->arena, weight->shard, d.shape[0], logical, err));
    oct_weight_storage *whole = *logical;
    oct_weight_reopen(whole);
    for (int i = 0; i < d.count; i++)
        OCT_TRY(place(whole, &whole->tensors[d.which[i]], &outputs->tensors[i], outputs->names[i],
                      err));
    whole->refresh_count = weight->shard->refresh_count;
    return OCT_OK;
}

const oct_fsdp_extension oct_gathered_weight_extension = {.pre_all_gather = pre_all_gather,
                                                          .post_all_gather = post_all_gather};
