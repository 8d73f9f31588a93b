/* One number for what a checkpoint holds: keys, shapes and every bit of their values. It does not
 * depend on how many ranks wrote it, in which files and chunks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cli/checkpoint_hash.h"
#include "numeric/bf16.h"

enum { PIECE_FLOATS = 1 << 20 };

static const uint64_t START = 0xCBF29CE484222325u, PRIME = 0x100000001B3u; /* FNV-1a, 64 bits */

static void add_word(uint64_t *hash, uint64_t word)
{
    *hash = (*hash ^ word) * PRIME;
}

static void add_bytes(uint64_t *hash, const void *data, int64_t bytes)
{
    const unsigned char *b = data;
    add_word(hash, (uint64_t)bytes);
    for (int64_t i = 0; i < bytes; i++)
        add_word(hash, b[i]);
}

static oct_status add_tensor(uint64_t *hash, const oct_checkpoint *checkpoint,
                             const oct_checkpoint_entry *entry, oct_err *err)
{
    int64_t row = 1;
    for (int d = 1; d < entry->ndim; d++)
        row *= entry->shape[d];
    const int64_t rows = entry->ndim > 0 ? entry->shape[0] : 1;
    const int64_t step = oct_max_i64(1, PIECE_FLOATS / oct_max_i64(1, row));
    float *values = malloc((size_t)(oct_min_i64(step, rows) * row + 1) * sizeof *values);
    if (!values)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory", entry->key);
    oct_status status = OCT_OK;
    for (int64_t first = 0; first < rows && status == OCT_OK; first += step) {
        const int64_t count = oct_min_i64(step, rows - first);
        status = oct_checkpoint_read_rows(checkpoint, entry->key, entry->ndim, entry->shape, first,
                                          count, values, err);
        for (int64_t i = 0; i < count * row && status == OCT_OK; i++)
            add_word(hash, oct_f32_bits(values[i]));
    }
    free(values);
    return status;
}

/* Whatever octet stores; an object of another program counts with its key alone. */
static void add_object(uint64_t *hash, const oct_checkpoint *checkpoint, const char *key,
                       oct_arena *arena)
{
    int64_t number = 0, count = 0;
    double real = 0.0;
    bool flag = false;
    const char *text = NULL;
    const int64_t *list = NULL;
    if (oct_checkpoint_read_int(checkpoint, key, &number, NULL) == OCT_OK)
        add_word(hash, (uint64_t)number);
    else if (oct_checkpoint_read_bool(checkpoint, key, &flag, NULL) == OCT_OK)
        add_word(hash, flag);
    else if (oct_checkpoint_read_float(checkpoint, key, &real, NULL) == OCT_OK)
        add_bytes(hash, &real, sizeof real);
    else if (oct_checkpoint_read_string(checkpoint, key, arena, &text, NULL) == OCT_OK)
        add_bytes(hash, text, (int64_t)strlen(text));
    else if (oct_checkpoint_read_ints(checkpoint, key, arena, &list, &count, NULL) == OCT_OK)
        add_bytes(hash, list, count * (int64_t)sizeof *list);
}

oct_status oct_checkpoint_hash(const oct_checkpoint *checkpoint, oct_arena *arena, uint64_t *out,
                               oct_err *err)
{
    uint64_t hash = START;
    for (int64_t i = 0; i < oct_checkpoint_entry_count(checkpoint); i++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(checkpoint, i);
        add_bytes(&hash, entry->key, (int64_t)strlen(entry->key));
        add_bytes(&hash, entry->dtype, (int64_t)strlen(entry->dtype));
        for (int d = 0; entry->is_tensor && d < entry->ndim; d++)
            add_word(&hash, (uint64_t)entry->shape[d]);
        if (entry->is_tensor)
            OCT_TRY(add_tensor(&hash, checkpoint, entry, err));
        else
            add_object(&hash, checkpoint, entry->key, arena);
    }
    *out = hash;
    return OCT_OK;
}
