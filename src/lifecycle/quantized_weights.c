#include "lifecycle/quantized_weights.h"

void oct_quantized_weights_init(oct_quantized_weights *weights)
{
    *weights = (oct_quantized_weights){0};
    oct_arena_init(&weights->arena, "quantized weights");
}

void oct_quantized_weights_release(oct_quantized_weights *weights)
{
    for (int64_t i = 0; i < weights->count; i++) {
        oct_weight_release(weights->params[i]->storage);
        weights->params[i]->storage = NULL;
    }
    oct_arena_release(&weights->arena);
    weights->params = NULL;
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

oct_status oct_quantized_weights_finalize(oct_quantized_weights *weights, const oct_plan *plan,
                                          const oct_low_precision_policy *policy,
                                          oct_dtype act_dtype, const oct_exec *exec,
                                          oct_trace *trace, oct_err *err)
{
    const int64_t count = collect(plan, NULL);
    void *params = NULL;
    OCT_TRY(oct_arena_array(&weights->arena, count, sizeof(oct_param *), &params, err));
    weights->params = params;
    (void)collect(plan, weights->params);
    for (int64_t i = 0; i < count; i++) {
        oct_param *param = weights->params[i];
        if (!param->init)
            return OCT_FAIL(err, OCT_E_API,
                            "cannot quantize '%s': it has no initial values, FP32 values are "
                            "required before the weights are finalised",
                            param->fqn);
        OCT_TRY(oct_weight_create(&weights->arena, policy, param, act_dtype, &param->storage, err));
        weights->count = i + 1;
        OCT_TRY(oct_weight_refresh(exec, trace, param->storage, param->init, NULL, err));
    }
    return OCT_OK;
}

oct_status oct_quantized_weights_refresh(oct_quantized_weights *weights,
                                         const oct_optimizer *optimizer, const oct_exec *exec,
                                         oct_trace *trace, oct_err *err)
{
    int64_t refreshed = 0;
    for (int64_t s = 0; s < optimizer->slot_count; s++) {
        const oct_optim_slot *slot = &optimizer->slots[s];
        if (!slot->param->storage)
            continue;
        OCT_TRY(oct_weight_refresh(exec, trace, slot->param->storage, slot->master, NULL, err));
        refreshed++;
    }
    if (refreshed != weights->count)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot refresh the low-precision weights: %lld of them have a master, "
                        "%lld are required",
                        (long long)refreshed, (long long)weights->count);
    return OCT_OK;
}

int64_t oct_quantized_weights_bytes(const oct_quantized_weights *weights)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < weights->count; i++) {
        const oct_weight_storage *storage = weights->params[i]->storage;
        bytes += oct_weight_bytes(storage->format, storage->ndim, storage->shape);
    }
    return bytes;
}
