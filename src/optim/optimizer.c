#include "optim/optimizer.h"

#include <stdlib.h>

#include "base/fault.h"
#include "numeric/fmath.h"
#include "optim/grad_norm.h"

oct_adamw_config oct_adamw_config_from(const oct_config *config)
{
    return (oct_adamw_config){.lr = config->optimizer.lr,
                              .beta1 = config->optimizer.beta1,
                              .beta2 = config->optimizer.beta2,
                              .eps = config->optimizer.eps,
                              .weight_decay = config->optimizer.weight_decay,
                              .max_grad_norm = config->training.max_grad_norm};
}

static oct_status new_moment(const oct_optimizer *optimizer, const oct_optim_slot *slot,
                             float **out, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_ledger_zalloc(optimizer->ledger, OCT_LEDGER_MOMENTS,
                              (size_t)slot->numel * sizeof(float), slot->param->fqn, &memory, err));
    *out = memory;
    return OCT_OK;
}

static void release_slots(oct_optimizer *optimizer)
{
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        oct_optim_slot *slot = &optimizer->slots[i];
        if (slot->value.data)
            slot->param->value.data = NULL;
        if (slot->value.data != slot->master)
            oct_ledger_free(optimizer->ledger, slot->value.data);
        if (slot->master)
            oct_ledger_remove(optimizer->ledger, OCT_LEDGER_MASTER,
                              (size_t)slot->numel * sizeof(float));
        free(slot->master);
        oct_ledger_free(optimizer->ledger, slot->exp_avg);
        oct_ledger_free(optimizer->ledger, slot->exp_avg_sq);
    }
}

static oct_status build_slots(oct_optimizer *optimizer, const oct_module_tree *tree, oct_err *err)
{
    for (int64_t i = 0; i < tree->param_count; i++) {
        oct_param *param = tree->params[i];
        if (!param->init || oct_fault("optimizer.master"))
            return OCT_FAIL(err, OCT_E_API,
                            "cannot build the optimizer: '%s' has no FP32 values to be its master, "
                            "initial values that are not dequantized are required",
                            param->fqn);
        oct_optim_slot *slot = &optimizer->slots[i];
        optimizer->slot_count = i + 1;
        *slot = (oct_optim_slot){.param = param,
                                 .row_begin = param->row_begin,
                                 .rows = param->rows,
                                 .numel = oct_param_own_numel(param)};
        if (!param->requires_grad)
            continue;
        OCT_TRY(new_moment(optimizer, slot, &slot->exp_avg, err));
        OCT_TRY(new_moment(optimizer, slot, &slot->exp_avg_sq, err));
    }
    return OCT_OK;
}

/* Only after everything that can fail: until then every init is where it was. */
static void take_masters(oct_optimizer *optimizer)
{
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        oct_optim_slot *slot = &optimizer->slots[i];
        slot->master = slot->param->init;
        slot->param->init = NULL;
        oct_ledger_add(optimizer->ledger, OCT_LEDGER_MASTER, (size_t)slot->numel * sizeof(float));
    }
}

static oct_status build(oct_optimizer *optimizer, const oct_module_tree *tree, oct_err *err)
{
    void *slots = NULL;
    OCT_TRY(oct_ledger_zalloc(optimizer->ledger, OCT_LEDGER_OTHER,
                              (size_t)tree->param_count * sizeof *optimizer->slots, "optimizer",
                              &slots, err));
    optimizer->slots = slots;
    return build_slots(optimizer, tree, err);
}

oct_status oct_optimizer_create(oct_module_tree *tree, const oct_adamw_config *config,
                                oct_comm *comm, oct_ledger *ledger, oct_optimizer **out,
                                oct_err *err)
{
    oct_optimizer *optimizer = NULL;
    void *memory = NULL;
    if (comm)
        oct_comm_phase(comm, "building the optimizer", NULL);
    oct_status status =
        oct_ledger_zalloc(ledger, OCT_LEDGER_OTHER, sizeof *optimizer, "optimizer", &memory, err);
    if (status == OCT_OK) {
        optimizer = memory;
        *optimizer = (oct_optimizer){.config = *config, .comm = comm, .ledger = ledger};
        status = build(optimizer, tree, err);
    }
    if (comm)
        status = oct_comm_agree(comm, status, err);
    if (status == OCT_OK)
        status = oct_norm_prepare(optimizer, err);
    if (status != OCT_OK) {
        oct_optimizer_destroy(optimizer);
        return status;
    }
    take_masters(optimizer);
    *out = optimizer;
    return OCT_OK;
}

void oct_optimizer_destroy(oct_optimizer *optimizer)
{
    if (!optimizer)
        return;
    release_slots(optimizer);
    oct_norm_release(optimizer);
    oct_ledger_free(optimizer->ledger, optimizer->slots);
    oct_ledger_free(optimizer->ledger, optimizer);
}

/* --- compute copies ------------------------------------------------------------------------ */

static oct_status attach_value(const oct_optimizer *optimizer, oct_optim_slot *slot,
                               oct_dtype act_dtype, oct_err *err)
{
    oct_param *param = slot->param;
    const bool is_master = act_dtype == OCT_DTYPE_F32 || param->keep_float32;
    oct_tensor value = {.data = slot->master,
                        .dtype = is_master ? OCT_DTYPE_F32 : act_dtype,
                        .ndim = param->ndim,
                        .shape = {slot->rows}};
    for (int d = 1; d < param->ndim; d++)
        value.shape[d] = param->shape[d];
    if (!is_master)
        OCT_TRY(oct_ledger_alloc(optimizer->ledger, OCT_LEDGER_HIGH_PRECISION,
                                 oct_tensor_bytes(&value), param->fqn, &value.data, err));
    slot->value = value;
    param->value = value;
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
        if (!slot->param->storage && !slot->value.data)
            OCT_TRY(attach_value(optimizer, slot, act_dtype, err));
    }
    return oct_optimizer_refresh_values(optimizer, exec, err);
}

oct_status oct_optimizer_refresh_values(oct_optimizer *optimizer, const oct_exec *exec,
                                        oct_err *err)
{
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        const oct_optim_slot *slot = &optimizer->slots[i];
        if (!slot->value.data || slot->value.data == slot->master)
            continue;
        oct_tensor master = slot->value;
        master.data = slot->master;
        master.dtype = OCT_DTYPE_F32;
        const oct_status status = oct_convert(exec, &master, &slot->value, err);
        if (status != OCT_OK)
            return OCT_WRAP(err, status, "refreshing '%s'", slot->param->fqn);
    }
    return OCT_OK;
}

/* --- update --------------------------------------------------------------------------------- */

float oct_clip_factor(double norm, double max_norm)
{
    if (max_norm == 0.0)
        return 1.0f;
    const double factor = max_norm / (norm + 1e-6);
    return factor < 1.0 ? (float)factor : 1.0f;
}

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
