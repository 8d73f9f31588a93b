/* octet bench quantize: BF16 to 8 bits, against memcpy of the input. The limit is the memory
 * traffic of that memcpy, with the bytes that each form has to read and write. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cli/bench_harness.h"

typedef struct source {
    oct_bench *bench;
    oct_tensor x;
    void *copy;
    oct_mx_out rows, both;
    uint8_t *codes;
} source;

static oct_status run_memcpy(void *arg, oct_err *err)
{
    source *s = arg;
    (void)err;
    memcpy(s->copy, s->x.data, oct_tensor_bytes(&s->x));
    return OCT_OK;
}

static oct_status run_mx_rows(void *arg, oct_err *err)
{
    source *s = arg;
    return oct_mx_quantize(&s->bench->exec, &s->x, NULL, OCT_MX_RULE_ROUND_UP, &s->rows, err);
}

static oct_status run_mx_both(void *arg, oct_err *err)
{
    source *s = arg;
    return oct_mx_quantize(&s->bench->exec, &s->x, NULL, OCT_MX_RULE_ROUND_UP, &s->both, err);
}

static oct_status run_hif8(void *arg, oct_err *err)
{
    source *s = arg;
    float amax = 0.0f;
    OCT_TRY(oct_hif8_amax(&s->bench->exec, &s->x, NULL, &amax, err));
    const float scale = oct_hif8_scale(amax, 15.0f);
    return oct_hif8_quantize(&s->bench->exec, &s->x, NULL, &scale, false, s->codes, err);
}

static oct_status one_case(oct_bench *bench, int64_t m, int64_t n, oct_err *err)
{
    const oct_arena_mark mark = oct_arena_save(&bench->memory);
    source s = {.bench = bench};
    uint8_t *bytes[4];
    const int64_t sizes[4] = {m * n, m * oct_ceil_div(n, 64) * 2, m * n,
                              oct_ceil_div(m, 64) * n * 2};
    OCT_TRY(oct_bench_gaussian(bench, "x", m, n, 1.0f, &s.x, err));
    OCT_TRY(oct_arena_alloc(&bench->memory, oct_tensor_bytes(&s.x), &s.copy, err));
    for (int i = 0; i < 4; i++) {
        void *memory = NULL;
        OCT_TRY(oct_arena_array(&bench->memory, sizes[i], 1, &memory, err));
        bytes[i] = memory;
    }
    s.rows = (oct_mx_out){.row_codes = bytes[0], .row_scales = bytes[1]};
    s.both = (oct_mx_out){.row_codes = bytes[0],
                          .row_scales = bytes[1],
                          .col_codes = bytes[2],
                          .col_scales = bytes[3]};
    s.codes = bytes[0];
    const double work = (double)m * (double)n;
    const double input = 2.0 * work, codes = work;
    const double row_scales = (double)sizes[1], col_scales = (double)sizes[3];
    const oct_bench_variant copy = {.peer = "memcpy", .work = work, .run = run_memcpy, .arg = &s};
    /* The rate of the copy counts elements, of 2 bytes read and 2 written. */
    const double element = 4.0;
    const oct_bench_variant rows[] = {
        copy,
        {.format = "mxfp8",
         .work = work,
         .limit = 1,
         .limit_work = (input + codes + row_scales) / element,
         .run = run_mx_rows,
         .arg = &s},
        {.format = "hif8", /* reads twice: amax, codes */
         .work = work,
         .limit = 1,
         .limit_work = (2.0 * input + codes) / element,
         .run = run_hif8,
         .arg = &s},
    };
    /* HiF8 has the same codes along either axis. */
    const oct_bench_variant both[] = {
        copy,
        {.format = "mxfp8",
         .work = work,
         .limit = 1,
         .limit_work = (input + 2.0 * codes + row_scales + col_scales) / element,
         .run = run_mx_both,
         .arg = &s},
    };
    char name[64];
    (void)snprintf(name, sizeof name, "%lldx%lld", (long long)m, (long long)n);
    oct_status status = oct_bench_case(bench, "quantize", name, rows, 3, 1e9, "Gelem/s", err);
    (void)snprintf(name, sizeof name, "%lldx%lld both axes", (long long)m, (long long)n);
    if (status == OCT_OK)
        status = oct_bench_case(bench, "quantize", name, both, 2, 1e9, "Gelem/s", err);
    oct_arena_rewind(&bench->memory, mark);
    return status;
}

oct_status oct_bench_quantize(oct_bench *bench, oct_err *err)
{
    OCT_TRY(one_case(bench, 512, 512, err));
    OCT_TRY(one_case(bench, 2048, 2048, err));
    return one_case(bench, 4096, 4096, err);
}
