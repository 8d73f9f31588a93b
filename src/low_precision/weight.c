#include "low_precision/weight.h"

#include <math.h>
#include <string.h>

#include "base/fault.h"
#include "low_precision/quantizer.h"

int64_t oct_weight_bytes(const oct_low_precision_format *format, int ndim, const int64_t *shape)
{
    oct_physical_tensor tensors[OCT_WEIGHT_MAX_TENSORS];
    const int count = format->weight_tensors(ndim, shape, tensors);
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (int64_t)oct_tensor_bytes(&tensors[i].tensor);
    return bytes;
}

int64_t oct_weight_fprop_bytes(const oct_low_precision_format *format, int ndim,
                               const int64_t *shape)
{
    oct_weight_storage weight = {.format = format, .ndim = ndim};
    oct_operand operand = {.format = format, .transposed = ndim == 3};
    memcpy(weight.shape, shape, sizeof(int64_t) * (size_t)ndim);
    format->weight_tensors(ndim, shape, weight.tensors);
    format->select(&weight, oct_weight_fprop_orientation(&weight), &operand);
    return (int64_t)(oct_tensor_bytes(&operand.data) + oct_tensor_bytes(&operand.scales));
}

static int64_t stack_count(const oct_weight_storage *weight)
{
    return weight->ndim == 3 ? weight->shape[0] : 1;
}

static oct_status fill(oct_arena *arena, const oct_low_precision_policy *policy,
                       const oct_param *param, oct_dtype logical_dtype, oct_weight_storage *weight,
                       oct_err *err)
{
    *weight = (oct_weight_storage){
        .fqn = param->fqn,
        .format = policy->format,
        .recipe = policy->recipe,
        .logical_dtype = logical_dtype,
        .requires_grad = param->requires_grad,
        .ndim = param->ndim,
    };
    memcpy(weight->shape, param->shape, sizeof weight->shape);
    weight->shape[0] = param->rows;
    weight->tensor_count =
        policy->format->weight_tensors(weight->ndim, weight->shape, weight->tensors);
    for (int i = 0; i < weight->tensor_count; i++) {
        oct_tensor *tensor = &weight->tensors[i].tensor;
        OCT_TRY(oct_arena_alloc(arena, oct_tensor_bytes(tensor), &tensor->data, err));
    }
    void *memory = NULL;
    const int64_t scales = policy->format->weight_scales(weight->ndim, weight->shape);
    if (scales > 0) {
        OCT_TRY(oct_arena_array(arena, scales, sizeof(float), &memory, err));
        weight->amax = memory;
    }
    oct_arena_init(&weight->panel_arena, "weight panels");
    return OCT_OK;
}

oct_status oct_weight_create(oct_arena *arena, const oct_low_precision_policy *policy,
                             const oct_param *param, oct_dtype logical_dtype,
                             oct_weight_storage **weight, oct_err *err)
{
    if (!policy->enabled)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot quantize '%s': low precision is off, an enabled policy is required",
                        param->fqn);
    if (param->ndim != 2 && param->ndim != 3)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot quantize '%s': it has %d dimensions, 2 or 3 are required",
                        param->fqn, param->ndim);
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(arena, sizeof **weight, &memory, err));
    OCT_TRY(fill(arena, policy, param, logical_dtype, memory, err));
    *weight = memory;
    return OCT_OK;
}

static void drop_panels(oct_weight_storage *weight)
{
    weight->panels[OCT_ORIENTATION_ROW] = NULL;
    weight->panels[OCT_ORIENTATION_COL] = NULL;
}

void oct_weight_release(oct_weight_storage *weight)
{
    if (!weight)
        return;
    oct_arena_release(&weight->panel_arena);
    drop_panels(weight);
}

oct_status oct_weight_create_gathered(oct_arena *arena, const oct_weight_storage *shard,
                                      int64_t rows, oct_weight_storage **weight, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_zalloc(arena, sizeof **weight, &memory, err));
    oct_weight_storage *whole = memory;
    *whole = (oct_weight_storage){
        .fqn = shard->fqn,
        .format = shard->format,
        .recipe = shard->recipe,
        .logical_dtype = shard->logical_dtype,
        .requires_grad = shard->requires_grad,
        .packs_at_use = true,
        .ndim = shard->ndim,
        .amax = shard->ndim == 2 ? shard->amax : NULL, /* of a stack, every rank knows its own */
    };
    memcpy(whole->shape, shard->shape, sizeof whole->shape);
    whole->shape[0] = rows;
    *weight = whole;
    oct_weight_reopen(whole);
    return OCT_OK;
}

void oct_weight_reopen(oct_weight_storage *gathered)
{
    gathered->tensor_count =
        gathered->format->weight_tensors(gathered->ndim, gathered->shape, gathered->tensors);
}

/* --- refresh --------------------------------------------------------------------------------- */

static oct_tensor master_tensor(const oct_weight_storage *weight, const float *master)
{
    oct_tensor tensor = {.dtype = OCT_DTYPE_F32, .ndim = weight->ndim};
    /* Views have no const form; quantizers only read. */
    memcpy(&tensor.data, &master, sizeof master);
    for (int d = 0; d < weight->ndim; d++)
        tensor.shape[d] = weight->shape[d];
    return tensor;
}

int64_t oct_weight_shared_amax_count(const oct_weight_storage *weight)
{
    return weight->ndim == 2 ? weight->format->weight_scales(weight->ndim, weight->shape) : 0;
}

oct_status oct_weight_local_amax(const oct_exec *exec, const oct_weight_storage *weight,
                                 const float *master, float *amax, oct_err *err)
{
    const oct_tensor tensor = master_tensor(weight, master);
    const int64_t count = weight->format->weight_scales(weight->ndim, weight->shape);
    if (count == 0)
        return OCT_FAIL(err, OCT_E_API, "cannot take the amax of '%s': %s has block scales",
                        weight->fqn, weight->format->name);
    if (oct_tensor_numel(&tensor) == 0) /* a shard without rows has nothing to say */
        memset(amax, 0, (size_t)count * sizeof *amax);
    else
        OCT_TRY(weight->format->weight_amax(exec, weight, &tensor, amax, err));
    for (int64_t i = 0; i < count; i++)
        if (isnan(amax[i]))
            amax[i] = INFINITY;
    return OCT_OK;
}

static void trace_refresh(oct_trace *trace, const oct_weight_storage *weight)
{
    if (!trace)
        return;
    oct_trace_event event = {
        .kind = OCT_TRACE_REFRESH,
        .fqn = weight->fqn,
        .format = weight->format->name,
        .dtype = oct_dtype_name(weight->format->data_dtype),
        .scale_dtype = oct_dtype_name(weight->format->scale_dtype),
        .grouped = weight->ndim == 3,
        .ndim = {weight->ndim},
    };
    for (int i = 0; i < weight->tensor_count; i++)
        event.tensors[i] = weight->tensors[i].name;
    memcpy(event.shape[0], weight->shape, sizeof weight->shape);
    oct_trace_emit(trace, &event);
    oct_operand operand;
    if (oct_weight_select(weight, oct_weight_fprop_orientation(weight), &operand, NULL) == OCT_OK)
        oct_quantize_trace(trace, weight->fqn, OCT_ROLE_WEIGHT_FWD, &operand);
    if (oct_weight_select(weight, oct_weight_dgrad_orientation(weight), &operand, NULL) == OCT_OK)
        oct_quantize_trace(trace, weight->fqn, OCT_ROLE_WEIGHT_BWD, &operand);
}

oct_status oct_weight_refresh(const oct_exec *exec, oct_trace *trace, oct_weight_storage *weight,
                              const float *master, const float *shared_amax, oct_err *err)
{
    const oct_tensor tensor = master_tensor(weight, master);
    oct_status status = OCT_OK;
    if (shared_amax)
        memcpy(weight->amax, shared_amax,
               (size_t)oct_weight_shared_amax_count(weight) * sizeof(float));
    else if (weight->amax)
        status = oct_weight_local_amax(exec, weight, master, weight->amax, err);
    if (status == OCT_OK && oct_fault("weight.refresh"))
        status = OCT_FAIL(err, OCT_E_KERNEL, "the kernel failed: a fault is planted");
    if (status == OCT_OK)
        status = weight->format->refresh(exec, weight, &tensor, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "refreshing '%s' to %s", weight->fqn, weight->format->name);
    drop_panels(weight);
    oct_arena_reset(&weight->panel_arena);
    weight->refresh_count++;
    trace_refresh(trace, weight);
    return OCT_OK;
}

/* --- use ------------------------------------------------------------------------------------- */

oct_orientation oct_weight_fprop_orientation(const oct_weight_storage *weight)
{
    return weight->ndim == 3 ? OCT_ORIENTATION_COL : OCT_ORIENTATION_ROW;
}

oct_orientation oct_weight_dgrad_orientation(const oct_weight_storage *weight)
{
    return weight->ndim == 3 ? OCT_ORIENTATION_ROW : OCT_ORIENTATION_COL;
}

oct_status oct_weight_expert_groups(const oct_weight_storage *weight, oct_arena *arena,
                                    oct_groups *groups, oct_err *err)
{
    const int64_t count = stack_count(weight);
    void *memory = NULL;
    OCT_TRY(oct_arena_array(arena, count, sizeof(int64_t), &memory, err));
    int64_t *ends = memory;
    for (int64_t e = 0; e < count; e++)
        ends[e] = (e + 1) * weight->shape[weight->ndim - 2];
    *groups = (oct_groups){.count = count, .ends = ends};
    return OCT_OK;
}

oct_status oct_weight_select(const oct_weight_storage *weight, oct_orientation orientation,
                             oct_operand *out, oct_err *err)
{
    if (weight->refresh_count == 0)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot read '%s': it was never quantized, one refresh is required",
                        weight->fqn);
    *out = (oct_operand){
        .format = weight->format,
        .logical_dtype = weight->logical_dtype,
        .transposed = weight->ndim == 3,
        .panels = weight->panels[orientation],
    };
    weight->format->select(weight, orientation, out);
    if (!out->data.data)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot read '%s': its %s orientation was not gathered, it is required",
                        weight->fqn, oct_orientation_name(orientation));
    return OCT_OK;
}

/* Room for the packed panels of one orientation: fprop contracts along the last stored axis. */
static size_t panel_room_bytes(const oct_weight_storage *weight, oct_orientation orientation)
{
    const bool fprop = orientation == oct_weight_fprop_orientation(weight);
    const int64_t n = weight->shape[weight->ndim - 2], k = weight->shape[weight->ndim - 1];
    const int64_t bound = fprop ? oct_panels_bytes_bound(n, k, OCT_SIDE_RIGHT)
                                : oct_panels_bytes_bound(k, n, OCT_SIDE_RIGHT);
    const int64_t each = bound + (int64_t)sizeof(oct_panels *) + OCT_ARENA_ALIGN;
    return (size_t)(stack_count(weight) * each) + OCT_ARENA_FIXED_BYTES;
}

/* Room for the panels of both orientations, so that no later refresh asks the heap again. */
static oct_status reserve_panels(oct_weight_storage *weight, oct_err *err)
{
    void *room = NULL;
    const size_t bytes = panel_room_bytes(weight, OCT_ORIENTATION_ROW) +
                         panel_room_bytes(weight, OCT_ORIENTATION_COL);
    OCT_TRY(oct_arena_alloc(&weight->panel_arena, bytes, &room, err));
    oct_arena_reset(&weight->panel_arena);
    return OCT_OK;
}

oct_status oct_weight_pack(const oct_exec *exec, oct_weight_storage *weight,
                           oct_orientation orientation, oct_err *err)
{
    if (weight->panels[orientation])
        return OCT_OK;
    oct_operand operand;
    OCT_TRY(oct_weight_select(weight, orientation, &operand, err));
    oct_arena *arena = &weight->panel_arena;
    if (!arena->first)
        OCT_TRY(reserve_panels(weight, err));
    const int64_t count = stack_count(weight);
    void *memory = NULL;
    OCT_TRY(oct_arena_array(arena, count, sizeof(oct_panels *), &memory, err));
    const oct_panels **panels = memory;
    for (int64_t e = 0; e < count; e++) {
        const oct_operand_slice slice = {.group = e, .rows = weight->shape[weight->ndim - 2]};
        const oct_quantized_matrix matrix = operand.format->matrix(&operand, &slice);
        oct_panels *packed = NULL;
        const oct_status status = oct_pack(exec, &matrix, OCT_SIDE_RIGHT, arena, &packed, err);
        if (status != OCT_OK)
            return OCT_WRAP(err, status, "packing '%s'", weight->fqn);
        panels[e] = packed;
    }
    weight->panels[orientation] = panels;
    return OCT_OK;
}

oct_status oct_weight_use(const oct_run *run, oct_weight_storage *weight,
                          oct_orientation orientation, oct_operand *out, oct_err *err)
{
    if (!weight->packs_at_use) {
        const oct_span span = oct_profile_begin(run->profile, OCT_PART_PACK);
        OCT_TRY(oct_weight_pack(run->exec, weight, orientation, err));
        oct_profile_end(run->profile, span);
    }
    return oct_weight_select(weight, orientation, out, err);
}
