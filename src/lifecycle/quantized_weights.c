#include "lifecycle/quantized_weights.h"

#include "base/fault.h"
#include "lifecycle/gathered_weight.h"

void oct_quantized_weights_init(oct_quantized_weights *weights)
{
    *weights = (oct_quantized_weights){0};
    oct_arena_init(&weights->arena, "quantized weights");
}

void oct_quantized_weights_release(oct_quantized_weights *weights)
{
    for (int64_t i = 0; i < weights->count; i++) {
        oct_weight_release(weights->shards[i]);
        weights->params[i]->storage = NULL;
    }
    oct_arena_release(&weights->arena);
    weights->params = NULL;
    weights->shards = NULL;
    weights->count = 0;
}

/* Matrix parameters of the replaced modules; a bias stays high precision. */
static int64_t collect(const oct_plan *plan, oct_param **params)
{
    int64_t target_count = 0, count = 0;
    const oct_plan_target *targets = oct_plan_targets(plan, &target_count);
    for (int64_t t = 0; t < target_count; t++) {
        const oct_module *module = targets[t].module;
        for (int p = 0; p < module->param_count; p++) {
            oct_param *param = module->params[p];
            if (param->ndim < 2)
                continue;
            if (params)
                params[count] = param;
            count++;
        }
    }
    return count;
}

static oct_status create_shards(oct_quantized_weights *weights, const oct_plan *plan,
                                const oct_low_precision_policy *policy, oct_dtype act_dtype,
                                oct_err *err)
{
    const int64_t count = collect(plan, NULL);
    void *memory = NULL;
    if (count == 0) /* low precision is off: nothing of it is there */
        return OCT_OK;
    OCT_TRY(oct_arena_array(&weights->arena, count, sizeof *weights->params, &memory, err));
    weights->params = memory;
    OCT_TRY(oct_arena_array(&weights->arena, count, sizeof *weights->shards, &memory, err));
    weights->shards = memory;
    OCT_TRY(oct_arena_array(&weights->arena, count, sizeof *weights->amax, &memory, err));
    weights->amax = memory;
    (void)collect(plan, weights->params);
    for (int64_t i = 0; i < count; i++) {
        oct_param *param = weights->params[i];
        OCT_TRY(oct_weight_create(&weights->arena, policy, param, act_dtype, &param->storage, err));
        param->storage->packs_at_use = weights->pack_at_use;
        oct_arena_attach(&param->storage->panel_arena, weights->arena.ledger, OCT_LEDGER_PANELS);
        weights->shards[i] = param->storage;
        weights->count = i + 1;
    }
    return OCT_OK;
}

/* Quantizes all weights; masters[i] are the owned rows of weight i. The amax values of weights with
 * one scale are reduced together first. */
static oct_status quantize(oct_quantized_weights *weights, const float *const *masters,
                           const oct_exec *exec, oct_trace *trace, oct_err *err)
{
    int64_t shared = 0;
    if (weights->count == 0)
        return OCT_OK;
    for (int64_t i = 0; i < weights->count; i++)
        if (oct_weight_shared_amax_count(weights->shards[i]) > 0)
            OCT_TRY(oct_weight_local_amax(exec, weights->shards[i], masters[i],
                                          &weights->amax[shared++], err));
    if (weights->comm)
        OCT_TRY(oct_comm_max_amax(weights->comm, weights->amax, shared, err));
    shared = 0;
    for (int64_t i = 0; i < weights->count; i++) {
        const bool is_shared = oct_weight_shared_amax_count(weights->shards[i]) > 0;
        OCT_TRY(oct_weight_refresh(exec, trace, weights->shards[i], masters[i],
                                   is_shared ? &weights->amax[shared++] : NULL, err));
    }
    return OCT_OK;
}

/* The masters of all weights, in their order, in scratch. */
static oct_status new_masters(const oct_quantized_weights *weights, const oct_exec *exec,
                              const float ***masters, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(
        oct_arena_zalloc(exec->scratch, (size_t)weights->count * sizeof **masters, &memory, err));
    *masters = memory;
    return OCT_OK;
}

oct_status oct_quantized_weights_finalize(oct_quantized_weights *weights, const oct_plan *plan,
                                          const oct_low_precision_policy *policy,
                                          oct_dtype act_dtype, const oct_exec *exec, oct_comm *comm,
                                          oct_trace *trace, oct_err *err)
{
    const float **masters = NULL;
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    weights->comm = comm;
    OCT_TRY(create_shards(weights, plan, policy, act_dtype, err));
    OCT_TRY(new_masters(weights, exec, &masters, err));
    for (int64_t i = 0; i < weights->count; i++) {
        masters[i] = weights->params[i]->init;
        if (!masters[i])
            return OCT_FAIL(err, OCT_E_API,
                            "cannot quantize '%s': it has no initial values, FP32 values are "
                            "required before the weights are finalised",
                            weights->params[i]->fqn);
    }
    OCT_TRY(quantize(weights, masters, exec, trace, err));
    oct_arena_rewind(exec->scratch, mark);
    return OCT_OK;
}

oct_status oct_quantized_weights_shard(oct_quantized_weights *weights, oct_fsdp *fsdp,
                                       bool narrow_backward, oct_err *err)
{
    void *memory = NULL;
    if (weights->count == 0)
        return OCT_OK;
    OCT_TRY(oct_arena_array(&weights->arena, weights->count, sizeof(oct_gathered_weight), &memory,
                            err));
    oct_gathered_weight *gathered = memory;
    for (int64_t i = 0; i < weights->count; i++) {
        oct_param *param = weights->params[i];
        gathered[i] = (oct_gathered_weight){.param = param,
                                            .shard = weights->shards[i],
                                            .arena = &weights->arena,
                                            .narrow_backward = narrow_backward};
        if (param->replicated || oct_fault("shard.unseen"))
            continue;
        const int times = oct_fault("shard.twice") ? 2 : 1;
        for (int k = 0; k < times; k++)
            OCT_TRY(
                oct_fsdp_extend(fsdp, param, &oct_gathered_weight_extension, &gathered[i], err));
    }
    return OCT_OK;
}

oct_status oct_quantized_weights_refresh(oct_quantized_weights *weights,
                                         const oct_optimizer *optimizer, const oct_exec *exec,
                                         oct_trace *trace, oct_err *err)
{
    const float **masters = NULL;
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    OCT_TRY(new_masters(weights, exec, &masters, err));
    for (int64_t i = 0; i < weights->count; i++) {
        for (int64_t s = 0; s < optimizer->slot_count; s++)
            if (optimizer->slots[s].param == weights->params[i])
                masters[i] = optimizer->slots[s].master;
        if (!masters[i])
            return OCT_FAIL(err, OCT_E_API,
                            "cannot refresh '%s': it has no master, one is required",
                            weights->params[i]->fqn);
    }
    OCT_TRY(quantize(weights, masters, exec, trace, err));
    oct_arena_rewind(exec->scratch, mark);
    return OCT_OK;
}

int64_t oct_quantized_weights_bytes(const oct_quantized_weights *weights)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < weights->count; i++) {
        const oct_weight_storage *storage = weights->shards[i];
        bytes += oct_weight_bytes(storage->format, storage->ndim, storage->shape);
    }
    return bytes;
}
