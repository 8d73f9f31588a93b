/* octet bench quantize: BF16 to 8 bits, against memcpy of the input. The limit is the memory
 * traffic of that memcpy, with the bytes that each form has to read and write. Several buffers go
 * round where one would stay in a cache. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "cli/bench_data.h"
#include "cli/bench_harness.h"

enum { MAX_BUFFERS = 16, MEMCPY = 0 };

/* One matrix with all that is made of it. */
typedef struct buffer {
    oct_tensor x;
    void *copy;
    oct_mx_out both;
} buffer;

typedef struct source {
    oct_bench *bench;
    int count;
    buffer buffers[MAX_BUFFERS];
    float amax, scale; /* of the last HiF8 run */
} source;

static oct_mx_out rows_of(const buffer *b)
{
    return (oct_mx_out){.row_codes = b->both.row_codes, .row_scales = b->both.row_scales};
}

static oct_status run_memcpy(void *arg, oct_err *err)
{
    source *s = arg;
    (void)err;
    for (int b = 0; b < s->count; b++)
        memcpy(s->buffers[b].copy, s->buffers[b].x.data, oct_tensor_bytes(&s->buffers[b].x));
    return OCT_OK;
}

static oct_status run_mx_rows(void *arg, oct_err *err)
{
    source *s = arg;
    for (int b = 0; b < s->count; b++) {
        const oct_mx_out rows = rows_of(&s->buffers[b]);
        OCT_TRY(oct_mx_quantize(&s->bench->exec, &s->buffers[b].x, NULL, OCT_MX_RULE_ROUND_UP,
                                &rows, err));
    }
    return OCT_OK;
}

static oct_status run_mx_both(void *arg, oct_err *err)
{
    source *s = arg;
    for (int b = 0; b < s->count; b++)
        OCT_TRY(oct_mx_quantize(&s->bench->exec, &s->buffers[b].x, NULL, OCT_MX_RULE_ROUND_UP,
                                &s->buffers[b].both, err));
    return OCT_OK;
}

static oct_status run_hif8(void *arg, oct_err *err)
{
    source *s = arg;
    for (int b = 0; b < s->count; b++) {
        const oct_tensor *x = &s->buffers[b].x;
        OCT_TRY(oct_hif8_amax(&s->bench->exec, x, NULL, &s->amax, err));
        s->scale = oct_hif8_scale(s->amax, 15.0f);
        OCT_TRY(oct_hif8_quantize(&s->bench->exec, x, NULL, &s->scale, false,
                                  s->buffers[b].both.row_codes, err));
    }
    return OCT_OK;
}

/* --- checks: every byte against the ref kernels ----------------------------------------------- */

static oct_status check_memcpy(void *arg, int64_t *checked, oct_err *err)
{
    source *s = arg;
    const buffer *b = &s->buffers[0];
    const size_t bytes = oct_tensor_bytes(&b->x);
    memset(b->copy, 0xff, bytes);
    OCT_TRY(run_memcpy(s, err));
    if (memcmp(b->copy, b->x.data, bytes) != 0)
        return OCT_FAIL(err, OCT_E_KERNEL, "the copy differs from its source, it may not");
    *checked += (int64_t)(bytes / 2);
    return OCT_OK;
}

static oct_status compare(const void *found, const void *required, int64_t bytes, const char *what,
                          int64_t *checked, oct_err *err)
{
    const uint8_t *f = found, *r = required;
    int64_t nonzero = 0;
    for (int64_t i = 0; i < bytes; i++) {
        if (f[i] != r[i])
            return OCT_FAIL(err, OCT_E_KERNEL, "%s: byte %lld is %02x, %02x is required", what,
                            (long long)i, f[i], r[i]);
        nonzero += f[i] != 0;
    }
    if (nonzero == 0)
        return OCT_FAIL(err, OCT_E_KERNEL, "%s are zero everywhere, other values are required",
                        what);
    *checked += bytes;
    return OCT_OK;
}

static int64_t bytes_of(const oct_tensor *x, int form)
{
    const int64_t m = x->shape[0], n = x->shape[1];
    const int64_t sizes[4] = {m * n, m * oct_ceil_div(n, 64) * 2, m * n,
                              oct_ceil_div(m, 64) * n * 2};
    return sizes[form];
}

static oct_status allocate(oct_bench *bench, const oct_tensor *x, oct_mx_out *out, oct_err *err)
{
    void *bytes[4];
    for (int form = 0; form < 4; form++)
        OCT_TRY(oct_arena_array(&bench->memory, bytes_of(x, form), 1, &bytes[form], err));
    *out = (oct_mx_out){.row_codes = bytes[0],
                        .row_scales = bytes[1],
                        .col_codes = bytes[2],
                        .col_scales = bytes[3]};
    return OCT_OK;
}

/* The first rows of the matrix, a whole number of blocks: enough for a slow reference. */
static oct_tensor slab_of(const oct_tensor *x)
{
    enum { SLAB_ROWS = 128 };
    oct_tensor slab = *x;
    slab.shape[0] = oct_min_i64(x->shape[0], SLAB_ROWS);
    return slab;
}

static oct_status check_mx(source *s, bool both, int64_t *checked, oct_err *err)
{
    static const char *const names[] = {"row codes", "row scales", "column codes", "column scales"};
    const buffer *b = &s->buffers[s->count - 1];
    const oct_arena_mark mark = oct_arena_save(&s->bench->memory);
    const oct_tensor slab = slab_of(&b->x);
    const uint8_t *found[] = {b->both.row_codes, b->both.row_scales, b->both.col_codes,
                              b->both.col_scales};
    oct_kernels ref;
    oct_kernels_init(&ref, OCT_ISA_REF);
    const oct_exec exec = {.kernels = &ref, .threads = 1, .scratch = &s->bench->scratch};
    oct_mx_out required;
    OCT_TRY(allocate(s->bench, &slab, &required, err));
    OCT_TRY(oct_mx_quantize(&exec, &slab, NULL, OCT_MX_RULE_ROUND_UP, &required, err));
    const uint8_t *wanted[] = {required.row_codes, required.row_scales, required.col_codes,
                               required.col_scales};
    for (int form = 0; form < (both ? 4 : 2); form++)
        OCT_TRY(
            compare(found[form], wanted[form], bytes_of(&slab, form), names[form], checked, err));
    oct_arena_rewind(&s->bench->memory, mark);
    return OCT_OK;
}

static void poison(const source *s)
{
    for (int b = 0; b < s->count; b++) {
        const oct_mx_out *out = &s->buffers[b].both;
        uint8_t *const bytes[] = {out->row_codes, out->row_scales, out->col_codes, out->col_scales};
        for (int form = 0; form < 4; form++)
            memset(bytes[form], 0, (size_t)bytes_of(&s->buffers[b].x, form));
    }
}

static oct_status check_mx_rows(void *arg, int64_t *checked, oct_err *err)
{
    poison(arg);
    OCT_TRY(run_mx_rows(arg, err));
    return check_mx(arg, false, checked, err);
}

static oct_status check_mx_both(void *arg, int64_t *checked, oct_err *err)
{
    poison(arg);
    OCT_TRY(run_mx_both(arg, err));
    return check_mx(arg, true, checked, err);
}

static oct_status check_hif8(void *arg, int64_t *checked, oct_err *err)
{
    source *s = arg;
    const buffer *b = &s->buffers[s->count - 1];
    const oct_arena_mark mark = oct_arena_save(&s->bench->memory);
    const oct_tensor slab = slab_of(&b->x);
    oct_kernels ref;
    oct_kernels_init(&ref, OCT_ISA_REF);
    const oct_exec exec = {.kernels = &ref, .threads = 1, .scratch = &s->bench->scratch};
    float amax = 0.0f;
    oct_mx_out required;
    poison(s);
    OCT_TRY(run_hif8(s, err));
    OCT_TRY(oct_hif8_amax(&exec, &b->x, NULL, &amax, err));
    if (amax != s->amax || !(amax > 0.0f))
        return OCT_FAIL(err, OCT_E_KERNEL, "amax is %.9g, %.9g is required", (double)s->amax,
                        (double)amax);
    const float scale = oct_hif8_scale(amax, 15.0f);
    OCT_TRY(allocate(s->bench, &slab, &required, err));
    OCT_TRY(oct_hif8_quantize(&exec, &slab, NULL, &scale, false, required.row_codes, err));
    OCT_TRY(
        compare(b->both.row_codes, required.row_codes, bytes_of(&slab, 0), "codes", checked, err));
    oct_arena_rewind(&s->bench->memory, mark);
    return OCT_OK;
}

/* --- cases ----------------------------------------------------------------------------------- */

/* Matrices that go round: one if it is meant to stay in a cache, else more than any holds. */
static int buffer_count(int64_t m, int64_t n, bool from_memory)
{
    enum { UNKNOWN_CACHE = 64 << 20 };
    const long found = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const int64_t cache = found > 0 ? found : UNKNOWN_CACHE;
    if (!from_memory)
        return 1;
    return (int)oct_min_i64(MAX_BUFFERS, oct_max_i64(2, oct_ceil_div(2 * cache, 2 * m * n)));
}

static oct_status open_source(oct_bench *bench, int64_t m, int64_t n, bool from_memory, source *s,
                              oct_err *err)
{
    *s = (source){.bench = bench, .count = buffer_count(m, n, from_memory)};
    for (int i = 0; i < s->count; i++) {
        buffer *b = &s->buffers[i];
        if (i == 0) {
            OCT_TRY(
                oct_bench_fill(&bench->memory, OCT_BENCH_GAUSSIAN, "x", m, n, 1.0f, &b->x, err));
        } else {
            OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_BF16, m, n, &b->x, err));
            memcpy(b->x.data, s->buffers[0].x.data, oct_tensor_bytes(&b->x));
        }
        OCT_TRY(oct_arena_alloc(&bench->memory, oct_tensor_bytes(&b->x), &b->copy, err));
        OCT_TRY(allocate(bench, &b->x, &b->both, err));
    }
    return OCT_OK;
}

static oct_status measure_case(oct_bench *bench, const char *shape, source *s, oct_err *err)
{
    const oct_tensor *x = &s->buffers[0].x;
    const double input = (double)oct_tensor_bytes(x) * s->count;
    const double elements = input / 2.0, codes = elements;
    const double row_scales = (double)bytes_of(x, 1) * s->count;
    const double col_scales = (double)bytes_of(x, 3) * s->count;
    const double element = 4.0; /* bytes that memcpy reads and writes of one */
    const oct_bench_variant copy = {
        .peer = "memcpy", .work = elements, .run = run_memcpy, .check = check_memcpy, .arg = s};
    const oct_bench_variant one_pass[] = {
        copy,
        {.format = "mxfp8",
         .work = elements,
         .floor = {{1 + MEMCPY, (input + codes + row_scales) / element}},
         .run = run_mx_rows,
         .check = check_mx_rows,
         .arg = s},
        {.format = "hif8", /* reads twice: amax, codes */
         .work = elements,
         .floor = {{1 + MEMCPY, (2.0 * input + codes) / element}},
         .run = run_hif8,
         .check = check_hif8,
         .arg = s},
    };
    /* HiF8 has the same codes along either axis. */
    const oct_bench_variant both[] = {
        copy,
        {.format = "mxfp8",
         .work = elements,
         .floor = {{1 + MEMCPY, (input + 2.0 * codes + row_scales + col_scales) / element}},
         .run = run_mx_both,
         .check = check_mx_both,
         .arg = s},
    };
    char name[80];
    (void)snprintf(name, sizeof name, "%s both axes", shape);
    if (oct_bench_wanted(bench, shape))
        OCT_TRY(oct_bench_case(bench, "quantize", shape, one_pass, 3, 1e9, "Gelem/s", err));
    if (oct_bench_wanted(bench, name))
        OCT_TRY(oct_bench_case(bench, "quantize", name, both, 2, 1e9, "Gelem/s", err));
    return OCT_OK;
}

static oct_status one_case(oct_bench *bench, int64_t full, bool from_memory, oct_err *err)
{
    char shape[64], longest[80];
    const int64_t n = oct_bench_dim(bench, full);
    (void)snprintf(shape, sizeof shape, "%lldx%lld", (long long)n, (long long)n);
    (void)snprintf(longest, sizeof longest, "%s both axes", shape);
    if (!oct_bench_wanted(bench, longest))
        return OCT_OK;
    const oct_arena_mark mark = oct_arena_save(&bench->memory);
    static source s;
    oct_status status = open_source(bench, n, n, from_memory, &s, err);
    if (status == OCT_OK)
        status = measure_case(bench, shape, &s, err);
    oct_arena_rewind(&bench->memory, mark);
    return status;
}

oct_status oct_bench_quantize(oct_bench *bench, oct_err *err)
{
    OCT_TRY(one_case(bench, 512, false, err));
    OCT_TRY(one_case(bench, 2048, false, err));
    return one_case(bench, 4096, true, err);
}
