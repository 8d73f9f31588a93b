#include "checkpoint/torch_keys.h"

#include <stdio.h>
#include <string.h>

/* --- prefixes ------------------------------------------------------------------------------ */

/* If `key` ends with ".<fqn>" or ".<fqn>.<name>" or is that, the bytes in front of fqn; else -1. */
static int64_t prefix_bytes(const char *key, const char *fqn, const char *name)
{
    const size_t key_bytes = strlen(key), fqn_bytes = strlen(fqn);
    const size_t tail_bytes = fqn_bytes + (name ? strlen(name) + 1 : 0);
    if (key_bytes < tail_bytes)
        return -1;
    const size_t prefix = key_bytes - tail_bytes;
    if ((prefix > 0 && key[prefix - 1] != '.') || memcmp(key + prefix, fqn, fqn_bytes) != 0)
        return -1;
    if (name && (key[prefix + fqn_bytes] != '.' || strcmp(key + prefix + fqn_bytes + 1, name) != 0))
        return -1;
    return (int64_t)prefix;
}

/* Copies the one prefix of `fqn` to `out`, which is left alone if no key ends with it. */
static oct_status find_prefix(const oct_checkpoint *checkpoint, const char *fqn, const char *name,
                              char out[OCT_TORCH_KEY_BYTES], oct_err *err)
{
    const char *found = NULL;
    for (int64_t i = 0; i < oct_checkpoint_entry_count(checkpoint); i++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(checkpoint, i);
        const int64_t bytes = entry->is_tensor ? prefix_bytes(entry->key, fqn, name) : -1;
        if (bytes < 0 || bytes >= OCT_TORCH_KEY_BYTES)
            continue;
        const bool is_exact = bytes == 0;
        if (found && !is_exact)
            return OCT_FAIL(err, OCT_E_CORRUPT,
                            "cannot choose between the keys '%.200s' and '%.200s': one tensor of "
                            "this name is required",
                            found, entry->key);
        memcpy(out, entry->key, (size_t)bytes);
        out[bytes] = '\0';
        if (is_exact)
            return OCT_OK;
        found = entry->key;
    }
    return OCT_OK;
}

oct_status oct_torch_keys_find(const oct_checkpoint *checkpoint, const char *fqn,
                               oct_torch_keys *out, oct_err *err)
{
    *out = (oct_torch_keys){.checkpoint = checkpoint,
                            .is_foreign = oct_checkpoint_step(checkpoint) < 0,
                            .state = "optimizer.state."};
    if (!out->is_foreign)
        return OCT_OK;
    if (!oct_checkpoint_find(checkpoint, fqn))
        OCT_TRY(find_prefix(checkpoint, fqn, NULL, out->weights, err));
    return find_prefix(checkpoint, fqn, "exp_avg", out->state, err);
}

/* --- keys ---------------------------------------------------------------------------------- */

/* The key of a tensor of `fqn`, or of one projection of one expert of it (projection not NULL: fqn
 * without its last part, the expert's number, the projection). */
static oct_status make_key(const oct_torch_keys *keys, const char *fqn, const char *name,
                           const char *projection, int64_t expert, char out[OCT_TORCH_KEY_BYTES],
                           oct_err *err)
{
    const char *prefix = name ? keys->state : keys->weights;
    const char *dot = name ? "." : "", *last = name ? name : "";
    const char *end = strrchr(fqn, '.');
    int n;
    if (projection)
        n = snprintf(out, OCT_TORCH_KEY_BYTES, "%s%.*s.%lld.%s.weight%s%s", prefix,
                     end ? (int)(end - fqn) : 0, fqn, (long long)expert, projection, dot, last);
    else
        n = snprintf(out, OCT_TORCH_KEY_BYTES, "%s%s%s%s", prefix, fqn, dot, last);
    if (n < 0 || n >= OCT_TORCH_KEY_BYTES)
        return OCT_FAIL(err, OCT_E_API, "cannot load '%.200s': the key is longer than %d bytes",
                        fqn, OCT_TORCH_KEY_BYTES);
    return OCT_OK;
}

/* The projections that a stacked parameter of experts is made of, in the order of its rows. */
typedef struct projections {
    const char *names[2];
    int count;
} projections;

static projections projections_of(const oct_param *param)
{
    const char *last = strrchr(param->fqn, '.');
    if (last && param->ndim == 3 && strcmp(last, ".gate_up_proj") == 0 && param->shape[1] % 2 == 0)
        return (projections){.names = {"gate_proj", "up_proj"}, .count = 2};
    if (last && param->ndim == 3 && strcmp(last, ".down_proj") == 0)
        return (projections){.names = {"down_proj"}, .count = 1};
    return (projections){.count = 0};
}

/* true if the parameter is there as one expert after the other; `key` is that of the whole. */
static bool is_apart(const oct_torch_keys *keys, const oct_param *param, const char *name,
                     const char *key, const projections *parts)
{
    char first[OCT_TORCH_KEY_BYTES];
    return keys->is_foreign && parts->count > 0 && !oct_checkpoint_find(keys->checkpoint, key) &&
           make_key(keys, param->fqn, name, parts->names[0], 0, first, NULL) == OCT_OK &&
           oct_checkpoint_find(keys->checkpoint, first);
}

bool oct_torch_keys_has(const oct_torch_keys *keys, const oct_param *param, const char *name)
{
    char key[OCT_TORCH_KEY_BYTES];
    const projections parts = projections_of(param);
    return make_key(keys, param->fqn, name, NULL, 0, key, NULL) == OCT_OK &&
           (oct_checkpoint_find(keys->checkpoint, key) || is_apart(keys, param, name, key, &parts));
}

/* --- reading ------------------------------------------------------------------------------- */

static oct_status check_state(const oct_torch_keys *keys, const char *key, oct_err *err)
{
    const oct_checkpoint_entry *entry = oct_checkpoint_find(keys->checkpoint, key);
    char numbered[OCT_TORCH_KEY_BYTES + 16];
    (void)snprintf(numbered, sizeof numbered, "%s0.exp_avg", keys->state);
    if (!entry && oct_checkpoint_find(keys->checkpoint, numbered))
        return OCT_FAIL(err, OCT_E_CORRUPT,
                        "cannot load '%s': the optimizer state is by number ('%s'), by name as "
                        "get_optimizer_state_dict gives it is required",
                        key, numbered);
    if (!entry && keys->is_foreign)
        return OCT_FAIL(err, OCT_E_CORRUPT,
                        "cannot load '%s': no such key in the checkpoint, AdamW's state or "
                        "checkpoint.restore_optimizer: false is required",
                        key);
    if (entry && entry->is_tensor && !keys->is_foreign && strcmp(entry->dtype, "float32") != 0)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot load '%s': %s, float32 is required", key,
                        entry->dtype);
    return OCT_OK;
}

/* Experts row_begin .. row_begin+rows-1, each projection [shape[1] / count, shape[2]]. */
static oct_status read_experts(const oct_torch_keys *keys, const oct_param *param, const char *name,
                               const projections *parts, int64_t row_begin, int64_t rows,
                               float *out, oct_err *err)
{
    const int64_t shape[2] = {param->shape[1] / parts->count, param->shape[2]};
    for (int64_t i = 0; i < rows * parts->count; i++) {
        char key[OCT_TORCH_KEY_BYTES];
        OCT_TRY(make_key(keys, param->fqn, name, parts->names[i % parts->count],
                         row_begin + i / parts->count, key, err));
        OCT_TRY(oct_checkpoint_read_tensor(keys->checkpoint, key, 2, shape,
                                           out + i * shape[0] * shape[1], err));
    }
    return OCT_OK;
}

oct_status oct_torch_keys_read(const oct_torch_keys *keys, const oct_param *param, const char *name,
                               int64_t row_begin, int64_t rows, float *out, oct_err *err)
{
    char key[OCT_TORCH_KEY_BYTES];
    const projections parts = projections_of(param);
    OCT_TRY(make_key(keys, param->fqn, name, NULL, 0, key, err));
    if (is_apart(keys, param, name, key, &parts))
        return read_experts(keys, param, name, &parts, row_begin, rows, out, err);
    if (name)
        OCT_TRY(check_state(keys, key, err));
    return oct_checkpoint_read_rows(keys->checkpoint, key, param->ndim, param->shape, row_begin,
                                    rows, out, err);
}

/* torch keeps one step count per parameter; here they are all the same. */
static oct_status read_step(const oct_checkpoint *checkpoint, const char *key, int64_t *step,
                            oct_err *err)
{
    float value = 0.0f;
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

oct_status oct_torch_keys_read_step(const oct_torch_keys *keys, const oct_param *param,
                                    int64_t *step, oct_err *err)
{
    char key[OCT_TORCH_KEY_BYTES];
    const projections parts = projections_of(param);
    OCT_TRY(make_key(keys, param->fqn, "step", NULL, 0, key, err));
    if (!is_apart(keys, param, "step", key, &parts))
        return read_step(keys->checkpoint, key, step, err);
    for (int64_t i = 0; i < param->shape[0] * parts.count; i++) {
        OCT_TRY(make_key(keys, param->fqn, "step", parts.names[i % parts.count], i / parts.count,
                         key, err));
        OCT_TRY(read_step(keys->checkpoint, key, step, err));
    }
    return OCT_OK;
}
