#include "optim/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/size.h"
#include "base/threads.h"
#include "numeric/fmath.h"

oct_adamw_config oct_adamw_config_from(const oct_config *config)
{
    return (oct_adamw_config){.lr = config->optimizer.lr,
                              .beta1 = config->optimizer.beta1,
                              .beta2 = config->optimizer.beta2,
                              .eps = config->optimizer.eps,
                              .weight_decay = config->optimizer.weight_decay,
                              .max_grad_norm = config->training.max_grad_norm};
}

/* One partial per dim-0 index; for 1-D that is one per element. */
static int64_t slot_partials(const oct_optim_slot *slot)
{
    return slot->exp_avg ? slot->rows : 0;
}

static oct_status new_floats(const oct_param *param, int64_t count, float **out, oct_err *err)
{
    size_t bytes = 0;
    if (!oct_size_mul((size_t)count, sizeof(float), &bytes))
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot get memory for '%s': %lld elements", param->fqn,
                        (long long)count);
    *out = calloc(1, bytes > 0 ? bytes : 1);
    if (!*out)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot get memory for the moments of '%s': %zu bytes",
                        param->fqn, bytes);
    return OCT_OK;
}

static void release_slots(oct_optimizer *optimizer)
{
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        oct_optim_slot *slot = &optimizer->slots[i];
        if (slot->value || slot->param->value.data == slot->master)
            slot->param->value.data = NULL;
        free(slot->value);
        free(slot->master);
        free(slot->exp_avg);
        free(slot->exp_avg_sq);
    }
}

/* Moments first, masters last: a failure leaves every init where it was. */
static oct_status build_slots(oct_optimizer *optimizer, oct_module_tree *tree, oct_err *err)
{
    for (int64_t i = 0; i < tree->param_count; i++) {
        oct_param *param = tree->params[i];
        if (!param->init)
            return OCT_FAIL(err, OCT_E_API,
                            "cannot build the optimizer: no initial value, FP32 init is required "
                            "('%s')",
                            param->fqn);
        oct_optim_slot *slot = &optimizer->slots[i];
        optimizer->slot_count = i + 1;
        *slot = (oct_optim_slot){.param = param,
                                 .rows = param->shape[0],
                                 .numel = oct_param_numel(param),
                                 .partial_begin = optimizer->partial_count};
        if (!param->requires_grad)
            continue;
        OCT_TRY(new_floats(param, slot->numel, &slot->exp_avg, err));
        OCT_TRY(new_floats(param, slot->numel, &slot->exp_avg_sq, err));
        optimizer->partial_count += slot_partials(slot);
    }
    const size_t count = optimizer->partial_count > 0 ? (size_t)optimizer->partial_count : 1;
    optimizer->partials = calloc(count, sizeof *optimizer->partials);
    if (!optimizer->partials)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot get memory for the gradient norm: %zu partials",
                        count);
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        oct_optim_slot *slot = &optimizer->slots[i];
        slot->master = slot->param->init;
        slot->param->init = NULL;
    }
    return OCT_OK;
}

oct_status oct_optimizer_create(oct_module_tree *tree, const oct_adamw_config *config,
                                oct_optimizer **out, oct_err *err)
{
    oct_optimizer *optimizer = calloc(1, sizeof *optimizer);
    const size_t count = tree->param_count > 0 ? (size_t)tree->param_count : 1;
    oct_optim_slot *slots = calloc(count, sizeof *slots);
    if (!optimizer || !slots) {
        free(optimizer);
        free(slots);
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot get memory for the optimizer: %zu parameters",
                        count);
    }
    optimizer->config = *config;
    optimizer->slots = slots;
    const oct_status status = build_slots(optimizer, tree, err);
    if (status != OCT_OK) {
        oct_optimizer_destroy(optimizer);
        return status;
    }
    *out = optimizer;
    return OCT_OK;
}

void oct_optimizer_destroy(oct_optimizer *optimizer)
{
    if (!optimizer)
        return;
    release_slots(optimizer);
    free(optimizer->slots);
    free(optimizer->partials);
    free(optimizer);
}

/* --- compute copies ------------------------------------------------------------------------ */

static oct_status attach_value(oct_optim_slot *slot, oct_dtype act_dtype, oct_err *err)
{
    oct_param *param = slot->param;
    const bool is_master = act_dtype == OCT_DTYPE_F32 || param->keep_float32;
    param->value = (oct_tensor){
        .data = slot->master, .dtype = is_master ? OCT_DTYPE_F32 : act_dtype, .ndim = param->ndim};
    for (int d = 0; d < param->ndim; d++)
        param->value.shape[d] = param->shape[d];
    if (is_master)
        return OCT_OK;
    param->value.data = NULL;
    const size_t bytes =
        (oct_tensor_bytes(&param->value) + OCT_ARENA_ALIGN - 1) / OCT_ARENA_ALIGN * OCT_ARENA_ALIGN;
    slot->value = aligned_alloc(OCT_ARENA_ALIGN, bytes > 0 ? bytes : OCT_ARENA_ALIGN);
    if (!slot->value)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot get memory for the value of '%s': %zu bytes",
                        param->fqn, bytes);
    param->value.data = slot->value;
    return OCT_OK;
}

oct_status oct_optimizer_attach_values(oct_optimizer *optimizer, const oct_exec *exec,
                                       oct_dtype act_dtype, oct_err *err)
{
    if (act_dtype != OCT_DTYPE_F32 && act_dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(
            err, OCT_E_API,
            "cannot attach values: activation dtype %s, float32 or bfloat16 is required",
            oct_dtype_name(act_dtype));
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        oct_optim_slot *slot = &optimizer->slots[i];
        if (!slot->param->storage && !slot->value)
            OCT_TRY(attach_value(slot, act_dtype, err));
    }
    return oct_optimizer_refresh_values(optimizer, exec, err);
}

oct_status oct_optimizer_refresh_values(oct_optimizer *optimizer, const oct_exec *exec,
                                        oct_err *err)
{
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        const oct_optim_slot *slot = &optimizer->slots[i];
        if (slot->param->storage || !slot->value)
            continue;
        const oct_tensor master = oct_tensor_2d(slot->master, OCT_DTYPE_F32, 1, slot->numel);
        const oct_tensor value =
            oct_tensor_2d(slot->value, slot->param->value.dtype, 1, slot->numel);
        const oct_status status = oct_convert(exec, &master, &value, err);
        if (status != OCT_OK)
            return OCT_WRAP(err, status, "refreshing '%s'", slot->param->fqn);
    }
    return OCT_OK;
}

/* --- gradient norm ------------------------------------------------------------------------- */

/* Partials handed to a thread at a time. */
enum { PARTIALS_PER_ITEM = 64 };

typedef struct norm_job {
    oct_optimizer *optimizer;
    oct_exec exec; /* one thread each, no scratch: a sum of squares needs none */
} norm_job;

/* The slot that owns partial `index`: the last one that begins at or before it and has any. */
static int64_t slot_of_partial(const oct_optimizer *optimizer, int64_t index)
{
    int64_t low = 0, high = optimizer->slot_count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (optimizer->slots[middle].partial_begin <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void norm_item(void *arg, int64_t item, int thread)
{
    (void)thread;
    const norm_job *job = arg;
    oct_optimizer *optimizer = job->optimizer;
    const int64_t begin = item * PARTIALS_PER_ITEM;
    const int64_t end = oct_min_i64(begin + PARTIALS_PER_ITEM, optimizer->partial_count);
    int64_t s = slot_of_partial(optimizer, begin);
    for (int64_t i = begin; i < end; i++) {
        while (i >= optimizer->slots[s].partial_begin + slot_partials(&optimizer->slots[s]))
            s++;
        const oct_optim_slot *slot = &optimizer->slots[s];
        const int64_t width = slot->numel / slot->rows;
        const float *grad = slot->param->grad + (i - slot->partial_begin) * width;
        optimizer->partials[i] = slot->param->ndim == 1 ? (double)*grad * (double)*grad
                                                        : oct_sum_squares(&job->exec, grad, width);
    }
}

static oct_status check_gradients(const oct_optimizer *optimizer, oct_err *err)
{
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        const oct_optim_slot *slot = &optimizer->slots[i];
        if (slot->exp_avg && (!slot->param->grad || !slot->param->grad_started))
            return OCT_FAIL(err, OCT_E_API,
                            "cannot compute the gradient norm: no gradient, a finished one is "
                            "required ('%s')",
                            slot->param->fqn);
    }
    return OCT_OK;
}

oct_status oct_optimizer_grad_norm(oct_optimizer *optimizer, const oct_exec *exec,
                                   oct_grad_norm *out, oct_err *err)
{
    OCT_TRY(check_gradients(optimizer, err));
    norm_job job = {.optimizer = optimizer, .exec = *exec};
    job.exec.threads = 1;
    job.exec.scratch = NULL;
    oct_parallel_for(exec->threads, oct_ceil_div(optimizer->partial_count, PARTIALS_PER_ITEM),
                     norm_item, &job);
    double sum = 0.0;
    int64_t first_nonfinite = -1;
    for (int64_t i = 0; i < optimizer->partial_count; i++) {
        /* Squares of FP32 values cannot overflow FP64: only a NaN or Inf element gets here. */
        if (first_nonfinite < 0 && !isfinite(optimizer->partials[i]))
            first_nonfinite = i;
        sum += optimizer->partials[i];
    }
    *out = (oct_grad_norm){.norm = sqrt(sum), .finite = first_nonfinite < 0};
    if (first_nonfinite >= 0) {
        int64_t s = slot_of_partial(optimizer, first_nonfinite);
        out->nonfinite_fqn = optimizer->slots[s].param->fqn;
    }
    return OCT_OK;
}

float oct_clip_factor(double norm, double max_norm)
{
    if (max_norm == 0.0)
        return 1.0f;
    const double factor = max_norm / (norm + 1e-6);
    return factor < 1.0 ? (float)factor : 1.0f;
}

/* --- update -------------------------------------------------------------------------------- */

oct_status oct_optimizer_update(oct_optimizer *optimizer, const oct_exec *exec,
                                const oct_grad_norm *norm, double lr_factor, bool *updated,
                                oct_err *err)
{
    *updated = false;
    if (!norm->finite)
        return OCT_OK;
    if (oct_fault("optimizer.update"))
        return OCT_FAIL(err, OCT_E_KERNEL, "cannot update weights: fault point 'optimizer.update'");
    const oct_adamw_config *config = &optimizer->config;
    const int64_t t = optimizer->step + 1;
    const oct_adamw_step step = {
        .lr = config->lr * lr_factor,
        .beta1 = config->beta1,
        .beta2 = config->beta2,
        .eps = config->eps,
        .weight_decay = config->weight_decay,
        .bias1 = 1.0 - oct_powi(config->beta1, t),
        .bias2 = 1.0 - oct_powi(config->beta2, t),
        .grad_scale = oct_clip_factor(norm->norm, config->max_grad_norm),
    };
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        const oct_optim_slot *slot = &optimizer->slots[i];
        if (!slot->exp_avg)
            continue;
        const oct_status status = oct_adamw(exec, &step, slot->numel, slot->param->grad,
                                            slot->master, slot->exp_avg, slot->exp_avg_sq, err);
        if (status != OCT_OK)
            return OCT_WRAP(err, status, "updating '%s'", slot->param->fqn);
    }
    optimizer->step = t;
    *updated = true;
    return OCT_OK;
}

void oct_optimizer_zero_grad(oct_optimizer *optimizer)
{
    for (int64_t i = 0; i < optimizer->slot_count; i++)
        optimizer->slots[i].param->grad_started = false;
}
