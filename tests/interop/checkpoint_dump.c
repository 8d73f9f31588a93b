/* checkpoint_dump DIR: every key of a checkpoint as octet reads it, in the lines of torch_dcp.py:
 * `KEY DTYPE [SHAPE] CRC` with the CRC-32 of the elements as FP32 (- if octet does not read them),
 * or `KEY TYPE VALUE`. Warnings and errors go to stderr. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "checkpoint/checkpoint.h"

static void print_warning(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "warning: %s\n", line);
}

static oct_status print_tensor(const oct_checkpoint *checkpoint, const oct_checkpoint_entry *entry,
                               oct_err *err)
{
    int64_t numel = 1;
    printf("%s %s [", entry->key, entry->dtype);
    for (int d = 0; d < entry->ndim; d++) {
        printf("%s%lld", d > 0 ? ", " : "", (long long)entry->shape[d]);
        numel *= entry->shape[d];
    }
    float *out = malloc((size_t)numel * sizeof *out + 1);
    if (!out)
        return OCT_FAIL(err, OCT_E_NOMEM, "no memory for '%s'", entry->key);
    const oct_status status =
        oct_checkpoint_read_tensor(checkpoint, entry->key, entry->ndim, entry->shape, out, err);
    if (status == OCT_OK)
        printf("] %08lx\n", crc32(0, (const unsigned char *)out, (uInt)(numel * 4)));
    else
        printf("] -\n");
    free(out);
    if (status == OCT_E_UNSUPPORTED)
        (void)fprintf(stderr, "%s\n", err->msg);
    return status == OCT_E_UNSUPPORTED ? OCT_OK : status;
}

static void print_object(const oct_checkpoint *checkpoint, const char *key, oct_arena *arena)
{
    oct_err err = {0};
    int64_t integer = 0;
    double real = 0.0;
    bool truth = false;
    const char *text = NULL;
    if (oct_checkpoint_read_bool(checkpoint, key, &truth, &err) == OCT_OK) {
        printf("%s bool %d\n", key, truth);
    } else if (oct_checkpoint_read_int(checkpoint, key, &integer, &err) == OCT_OK) {
        printf("%s int %" PRId64 "\n", key, integer);
    } else if (oct_checkpoint_read_float(checkpoint, key, &real, &err) == OCT_OK) {
        uint64_t bits = 0;
        memcpy(&bits, &real, sizeof bits);
        printf("%s float %016" PRIx64 "\n", key, bits);
    } else if (oct_checkpoint_read_string(checkpoint, key, arena, &text, &err) == OCT_OK) {
        printf("%s str %s\n", key, text);
    } else {
        printf("%s object\n", key);
        (void)fprintf(stderr, "%s\n", err.msg);
    }
}

static oct_status dump(const char *dir, oct_arena *arena, oct_err *err)
{
    oct_checkpoint *checkpoint = NULL;
    OCT_TRY(oct_checkpoint_open(NULL, dir, OCT_VERIFY_CRC, print_warning, NULL, &checkpoint, err));
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < oct_checkpoint_entry_count(checkpoint) && status == OCT_OK; i++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(checkpoint, i);
        if (entry->is_tensor)
            status = print_tensor(checkpoint, entry, err);
        else
            print_object(checkpoint, entry->key, arena);
    }
    oct_checkpoint_close(checkpoint);
    return status;
}

int main(int argc, char **argv)
{
    oct_err err = {0};
    oct_arena arena;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: checkpoint_dump DIR\n");
        return 2;
    }
    oct_arena_init(&arena, "strings");
    const oct_status status = dump(argv[1], &arena, &err);
    oct_arena_release(&arena);
    if (status == OCT_OK)
        return 0;
    (void)fprintf(stderr, "error: %s\n", err.msg);
    return 4;
}
