#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

enum { KEY_BYTES = 1024 };

static oct_status state_key(const oct_param *param, const char *name, char out[KEY_BYTES],
                            oct_err *err)
{
    const int n = snprintf(out, KEY_BYTES, "optimizer.state.%s.%s", param->fqn, name);
    if (n < 0 || n >= KEY_BYTES)
        return OCT_FAIL(err, OCT_E_API, "cannot load '%s': the name is longer than %d bytes",
                        param->fqn, KEY_BYTES);
    return OCT_OK;
}

/* The rows that this slot owns of one tensor of optimizer.state. */
static oct_status restore_state(const oct_checkpoint *checkpoint, const oct_optim_slot *slot,
                                const char *name, float *out, oct_err *err)
{
    char key[KEY_BYTES];
    OCT_TRY(state_key(slot->param, name, key, err));
    const oct_checkpoint_entry *entry = oct_checkpoint_find(checkpoint, key);
    if (entry && entry->is_tensor && strcmp(entry->dtype, "float32") != 0)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot load '%s': %s, float32 is required", key,
                        entry->dtype);
    return oct_checkpoint_read_rows(checkpoint, key, slot->param->ndim, slot->param->shape,
                                    slot->row_begin, slot->rows, out, err);
}

static oct_status restore_master(const oct_checkpoint *checkpoint, const oct_optim_slot *slot,
                                 bool with_moments, oct_err *err)
{
    char key[KEY_BYTES];
    OCT_TRY(state_key(slot->param, "master", key, err));
    if (with_moments || oct_checkpoint_find(checkpoint, key))
        return restore_state(checkpoint, slot, "master", slot->master, err);
    return oct_checkpoint_read_rows(checkpoint, slot->param->fqn, slot->param->ndim,
                                    slot->param->shape, slot->row_begin, slot->rows, slot->master,
                                    err);
}

/* torch keeps one step count per parameter; here they are all the same. */
static oct_status restore_step(const oct_checkpoint *checkpoint, const oct_optim_slot *slot,
                               int64_t *step, oct_err *err)
{
    char key[KEY_BYTES];
    float value = 0.0f;
    OCT_TRY(state_key(slot->param, "step", key, err));
    OCT_TRY(oct_checkpoint_read_tensor(checkpoint, key, 0, NULL, &value, err));
    if (!(value >= 0.0f && value <= 16777216.0f) || value != (float)(int64_t)value ||
        (*step >= 0 && *step != (int64_t)value))
        return OCT_FAIL(
            err, OCT_E_CORRUPT,
            "cannot load '%s': step %g, one whole number for all parameters is required", key,
            (double)value);
    *step = (int64_t)value;
    return OCT_OK;
}

oct_status oct_checkpoint_restore_optimizer(const oct_checkpoint *checkpoint,
                                            oct_optimizer *optimizer, bool with_moments,
                                            oct_err *err)
{
    int64_t step = -1;
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        const oct_optim_slot *slot = &optimizer->slots[i];
        OCT_TRY(restore_master(checkpoint, slot, with_moments, err));
        if (!slot->param->requires_grad)
            continue;
        if (!with_moments) {
            memset(slot->exp_avg, 0, (size_t)slot->numel * sizeof(float));
            memset(slot->exp_avg_sq, 0, (size_t)slot->numel * sizeof(float));
            continue;
        }
        OCT_TRY(restore_state(checkpoint, slot, "exp_avg", slot->exp_avg, err));
        OCT_TRY(restore_state(checkpoint, slot, "exp_avg_sq", slot->exp_avg_sq, err));
        OCT_TRY(restore_step(checkpoint, slot, &step, err));
    }
    optimizer->step = step >= 0 ? step : 0;
    return OCT_OK;
}

oct_status oct_checkpoint_restore_buffers(const oct_checkpoint *checkpoint, oct_module_tree *tree,
                                          oct_err *err)
{
    for (int64_t i = 0; i < tree->buffer_count; i++) {
        const oct_buffer *buffer = tree->buffers[i];
        if (buffer->persistent)
            OCT_TRY(oct_checkpoint_read_tensor(checkpoint, buffer->fqn, 1, &buffer->numel,
                                               buffer->data, err));
    }
    return OCT_OK;
}
