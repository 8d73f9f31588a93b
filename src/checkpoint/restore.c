#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/torch_keys.h"

/* octet's own moments go with the FP32 masters; those of PyTorch with the weights themselves. */
static oct_status restore_master(const oct_torch_keys *keys, const oct_optim_slot *slot,
                                 bool with_moments, oct_err *err)
{
    const bool has_master = oct_torch_keys_has(keys, slot->param, "master");
    const bool is_required = with_moments && !keys->is_foreign;
    return oct_torch_keys_read(keys, slot->param, has_master || is_required ? "master" : NULL,
                               slot->row_begin, slot->rows, slot->master, err);
}

static oct_status restore_moments(const oct_torch_keys *keys, const oct_optim_slot *slot,
                                  int64_t *step, oct_err *err)
{
    OCT_TRY(oct_torch_keys_read(keys, slot->param, "exp_avg", slot->row_begin, slot->rows,
                                slot->exp_avg, err));
    OCT_TRY(oct_torch_keys_read(keys, slot->param, "exp_avg_sq", slot->row_begin, slot->rows,
                                slot->exp_avg_sq, err));
    return oct_torch_keys_read_step(keys, slot->param, step, err);
}

oct_status oct_checkpoint_restore_optimizer(const oct_checkpoint *checkpoint,
                                            oct_optimizer *optimizer, bool with_moments,
                                            oct_err *err)
{
    oct_torch_keys keys;
    int64_t step = -1;
    const char *first = optimizer->slot_count > 0 ? optimizer->slots[0].param->fqn : "";
    OCT_TRY(oct_torch_keys_find(checkpoint, first, &keys, err));
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        const oct_optim_slot *slot = &optimizer->slots[i];
        OCT_TRY(restore_master(&keys, slot, with_moments, err));
        if (!slot->param->requires_grad)
            continue;
        if (with_moments) {
            OCT_TRY(restore_moments(&keys, slot, &step, err));
            continue;
        }
        memset(slot->exp_avg, 0, (size_t)slot->numel * sizeof(float));
        memset(slot->exp_avg_sq, 0, (size_t)slot->numel * sizeof(float));
    }
    optimizer->step = step >= 0 ? step : 0;
    return OCT_OK;
}

oct_status oct_checkpoint_restore_buffers(const oct_checkpoint *checkpoint, oct_module_tree *tree,
                                          oct_err *err)
{
    for (int64_t i = 0; i < tree->buffer_count; i++) {
        const oct_buffer *buffer = tree->buffers[i];
        if (!buffer->persistent)
            continue;
        oct_torch_keys keys;
        char key[2 * OCT_TORCH_KEY_BYTES];
        OCT_TRY(oct_torch_keys_find(checkpoint, buffer->fqn, &keys, err));
        (void)snprintf(key, sizeof key, "%s%s", keys.weights, buffer->fqn);
        OCT_TRY(oct_checkpoint_read_tensor(checkpoint, key, 1, &buffer->numel, buffer->data, err));
    }
    return OCT_OK;
}
