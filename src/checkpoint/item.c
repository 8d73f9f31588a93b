#include "checkpoint/item.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void oct_item_list_init(oct_item_list *list)
{
    *list = (oct_item_list){0};
    oct_arena_init(&list->arena, "checkpoint items");
}

void oct_item_list_release(oct_item_list *list)
{
    oct_arena_release(&list->arena);
    oct_item_list_init(list);
}

void oct_item_list_clear(oct_item_list *list)
{
    oct_arena_reset(&list->arena);
    list->items = NULL;
    list->count = list->capacity = 0;
}

static oct_status copy_text(oct_item_list *list, const char *text, size_t bytes, const char **out,
                            oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(&list->arena, bytes + 1, &memory, err));
    if (bytes > 0)
        memcpy(memory, text, bytes);
    ((char *)memory)[bytes] = '\0';
    *out = memory;
    return OCT_OK;
}

/* Appends an entry whose key is the parts joined by dots. */
static oct_status add(oct_item_list *list, const char *const *parts, int part_count,
                      oct_item_kind kind, oct_item **out, oct_err *err)
{
    if (list->count == list->capacity) {
        const int64_t capacity = list->capacity * 2 + 64;
        void *memory = NULL;
        OCT_TRY(oct_arena_array(&list->arena, capacity, sizeof(oct_item), &memory, err));
        if (list->count > 0)
            memcpy(memory, list->items, (size_t)list->count * sizeof(oct_item));
        list->items = memory;
        list->capacity = capacity;
    }
    oct_item item = {.kind = kind, .path_count = part_count};
    size_t bytes = 0;
    for (int i = 0; i < part_count; i++) {
        OCT_TRY(copy_text(list, parts[i], strlen(parts[i]), &item.path[i], err));
        bytes += strlen(parts[i]) + 1;
    }
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(&list->arena, bytes, &memory, err));
    char *key = memory;
    size_t at = 0;
    for (int i = 0; i < part_count; i++) {
        const size_t length = strlen(parts[i]);
        memcpy(key + at, parts[i], length);
        at += length;
        key[at++] = i + 1 < part_count ? '.' : '\0';
    }
    item.key = key;
    list->items[list->count] = item;
    *out = &list->items[list->count++];
    return OCT_OK;
}

static oct_status add_object(oct_item_list *list, const char *group, const char *name,
                             oct_item_kind kind, oct_item **out, oct_err *err)
{
    const char *parts[2] = {group, name};
    OCT_TRY(group ? add(list, parts, 2, kind, out, err) : add(list, parts + 1, 1, kind, out, err));
    (*out)->rows = 1;
    return OCT_OK;
}

static oct_status add_tensor(oct_item_list *list, const char *const *parts, int part_count,
                             oct_dtype dtype, int ndim, const int64_t *shape, const float *data,
                             oct_item **out, oct_err *err)
{
    oct_item *item = NULL;
    OCT_TRY(add(list, parts, part_count, OCT_ITEM_TENSOR, &item, err));
    if (ndim < 0 || ndim > OCT_MAX_NDIM || (dtype != OCT_DTYPE_F32 && dtype != OCT_DTYPE_BF16)) {
        list->count--;
        return OCT_FAIL(err, OCT_E_API,
                        "cannot save '%s': %d dimensions of %s, at most %d of float32 or bfloat16 "
                        "are required",
                        item->key, ndim, oct_dtype_name(dtype), OCT_MAX_NDIM);
    }
    item->dtype = dtype;
    item->ndim = ndim;
    for (int d = 0; d < ndim; d++)
        item->shape[d] = shape[d];
    item->rows = ndim > 0 ? shape[0] : 1;
    item->data = data;
    *out = item;
    return OCT_OK;
}

oct_status oct_item_add_tensor(oct_item_list *list, const char *key, oct_dtype dtype, int ndim,
                               const int64_t *shape, const float *data, oct_err *err)
{
    oct_item *item = NULL;
    return add_tensor(list, &key, 1, dtype, ndim, shape, data, &item, err);
}

oct_status oct_item_add_shard(oct_item_list *list, const char *key, oct_dtype dtype, int ndim,
                              const int64_t *shape, int64_t row_begin, int64_t rows,
                              const float *data, oct_err *err)
{
    oct_item *item = NULL;
    OCT_TRY(add_tensor(list, &key, 1, dtype, ndim, shape, data, &item, err));
    item->row_begin = row_begin;
    item->rows = rows;
    item->sharded = true;
    return OCT_OK;
}

oct_status oct_item_add_int(oct_item_list *list, const char *group, const char *name, int64_t value,
                            oct_err *err)
{
    oct_item *item = NULL;
    OCT_TRY(add_object(list, group, name, OCT_ITEM_INT, &item, err));
    item->int_value = value;
    return OCT_OK;
}

oct_status oct_item_add_float(oct_item_list *list, const char *group, const char *name,
                              double value, oct_err *err)
{
    oct_item *item = NULL;
    OCT_TRY(add_object(list, group, name, OCT_ITEM_FLOAT, &item, err));
    item->float_value = value;
    return OCT_OK;
}

oct_status oct_item_add_bool(oct_item_list *list, const char *group, const char *name, bool value,
                             oct_err *err)
{
    oct_item *item = NULL;
    OCT_TRY(add_object(list, group, name, OCT_ITEM_BOOL, &item, err));
    item->int_value = value;
    return OCT_OK;
}

oct_status oct_item_add_string(oct_item_list *list, const char *group, const char *name,
                               const char *value, oct_err *err)
{
    oct_item *item = NULL;
    if (!oct_utf8_is_valid(value))
        return OCT_FAIL(err, OCT_E_API, "cannot save '%s': no valid UTF-8, a string has to be",
                        name);
    OCT_TRY(add_object(list, group, name, OCT_ITEM_STRING, &item, err));
    item->byte_count = (int64_t)strlen(value);
    return copy_text(list, value, strlen(value), &item->bytes, err);
}

oct_status oct_item_add_bytes(oct_item_list *list, const char *group, const char *name,
                              const void *value, int64_t bytes, oct_err *err)
{
    oct_item *item = NULL;
    OCT_TRY(add_object(list, group, name, OCT_ITEM_BYTES, &item, err));
    item->byte_count = bytes;
    return copy_text(list, value, (size_t)bytes, &item->bytes, err);
}

oct_status oct_item_add_ints(oct_item_list *list, const char *group, const char *name,
                             const int64_t *values, int64_t count, oct_err *err)
{
    oct_item *item = NULL;
    void *copy = NULL;
    OCT_TRY(add_object(list, group, name, OCT_ITEM_INT_LIST, &item, err));
    OCT_TRY(oct_arena_array(&list->arena, count, sizeof *values, &copy, err));
    if (count > 0)
        memcpy(copy, values, (size_t)count * sizeof *values);
    item->ints = copy;
    item->int_count = count;
    return OCT_OK;
}

/* The rows of `data` that this slot owns of a tensor of its parameter's shape. */
static oct_status add_rows(oct_item_list *list, const char *const *parts, int part_count,
                           oct_dtype dtype, const oct_optim_slot *slot, const float *data,
                           oct_err *err)
{
    const oct_param *param = slot->param;
    oct_item *item = NULL;
    OCT_TRY(
        add_tensor(list, parts, part_count, dtype, param->ndim, param->shape, data, &item, err));
    item->row_begin = slot->row_begin;
    item->rows = slot->rows;
    item->sharded = !param->replicated;
    return OCT_OK;
}

/* One tensor of optimizer.state.<fqn>. */
static oct_status add_state(oct_item_list *list, const oct_optim_slot *slot, const char *name,
                            const float *data, oct_err *err)
{
    const char *parts[4] = {"optimizer", "state", slot->param->fqn, name};
    return add_rows(list, parts, 4, OCT_DTYPE_F32, slot, data, err);
}

static oct_status add_slot(oct_item_list *list, const oct_optim_slot *slot, const float *step,
                           oct_err *err)
{
    const char *key = slot->param->fqn;
    OCT_TRY(add_rows(list, &key, 1, OCT_DTYPE_BF16, slot, slot->master, err));
    OCT_TRY(add_state(list, slot, "master", slot->master, err));
    if (!slot->param->requires_grad)
        return OCT_OK;
    OCT_TRY(add_state(list, slot, "exp_avg", slot->exp_avg, err));
    OCT_TRY(add_state(list, slot, "exp_avg_sq", slot->exp_avg_sq, err));
    const char *parts[4] = {"optimizer", "state", key, "step"};
    oct_item *item = NULL;
    return add_tensor(list, parts, 4, OCT_DTYPE_F32, 0, NULL, step, &item, err);
}

oct_status oct_item_add_optimizer(oct_item_list *list, const oct_optimizer *optimizer, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(&list->arena, sizeof(float), &memory, err));
    float *step = memory;
    *step = (float)optimizer->step;
    if ((int64_t)*step != optimizer->step)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot save the optimizer: step %lld, torch's float32 step holds at most "
                        "16777216 exactly",
                        (long long)optimizer->step);
    for (int64_t i = 0; i < optimizer->slot_count; i++)
        OCT_TRY(add_slot(list, &optimizer->slots[i], step, err));
    return OCT_OK;
}

oct_status oct_item_add_buffers(oct_item_list *list, const oct_module_tree *tree, oct_err *err)
{
    for (int64_t i = 0; i < tree->buffer_count; i++) {
        const oct_buffer *buffer = tree->buffers[i];
        if (!buffer->persistent)
            continue;
        OCT_TRY(oct_item_add_tensor(list, buffer->fqn, OCT_DTYPE_F32, 1, &buffer->numel,
                                    buffer->data, err));
    }
    return OCT_OK;
}
