/* What the tests of both products share: outputs with canaries and an epilogue of their own. */
#ifndef GEMM_FIXTURE_H
#define GEMM_FIXTURE_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "exec_fixture.h"
#include "gemm_random.h"

/* An output matrix inside a larger buffer; everything around it must survive. */
typedef struct fixture_out {
    oct_gemm_out out;
    int64_t rows, cols;
    size_t bytes;
    unsigned char *buffer, *before;
    float *bias;
} fixture_out;

typedef enum out_choice { OUT_PLAIN, OUT_FINISHED, OUT_ANY } out_choice;

/* OUT_PLAIN: F32 as it comes. OUT_FINISHED: any but CONTINUE. */
static void out_random(fixture_out *f, int64_t rows, int64_t cols, out_choice choice)
{
    memset(f, 0, sizeof *f);
    f->rows = rows;
    f->cols = cols;
    f->out.ld = cols + random_below(5);
    switch (choice == OUT_PLAIN ? 4 : random_below(choice == OUT_ANY ? 6 : 5)) {
    case 0:
        f->out.dtype = OCT_DTYPE_BF16;
        break;
    case 1:
        f->out.round_bf16 = true;
        break;
    case 2:
        f->out.store = OCT_GEMM_FOLD;
        break;
    case 3:
        f->out.store = OCT_GEMM_FOLD;
        f->out.round_bf16 = true;
        break;
    case 5:
        f->out.store = OCT_GEMM_CONTINUE;
        break;
    default:
        break;
    }
    const size_t width = f->out.dtype == OCT_DTYPE_BF16 ? 2 : 4;
    const size_t lead = width * (size_t)(8 + random_below(16));
    f->bytes = lead + width * (size_t)(rows * f->out.ld) + 64;
    f->buffer = malloc(f->bytes);
    f->before = malloc(f->bytes);
    assert_non_null(f->buffer);
    assert_non_null(f->before);
    for (size_t i = 0; i < f->bytes; i++)
        f->before[i] = (unsigned char)random_bits();
    f->out.data = f->buffer + lead;
    if (f->out.dtype == OCT_DTYPE_F32)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                const float x = (float)random_normal();
                memcpy(f->before + lead + (size_t)(i * f->out.ld + j) * 4, &x, 4);
            }
    if (choice != OUT_PLAIN && random_below(2)) {
        f->bias = malloc((size_t)cols * sizeof(float) + 1);
        assert_non_null(f->bias);
        for (int64_t j = 0; j < cols; j++)
            f->bias[j] = (float)random_normal();
        f->out.bias = f->bias;
    }
}

static void out_free(fixture_out *f)
{
    free(f->buffer);
    free(f->before);
    free(f->bias);
}

static void out_reset(fixture_out *f)
{
    memcpy(f->buffer, f->before, f->bytes);
}

/* Compares C with the finished values of `sums` [rows][cols], and everything else with what was
 * there before. */
static void out_check(const fixture_out *f, const float *sums)
{
    const size_t width = f->out.dtype == OCT_DTYPE_BF16 ? 2 : 4;
    unsigned char *expected = malloc(f->bytes);
    assert_non_null(expected);
    memcpy(expected, f->before, f->bytes);
    unsigned char *base = expected + ((const unsigned char *)f->out.data - f->buffer);
    for (int64_t i = 0; i < f->rows; i++)
        for (int64_t j = 0; j < f->cols; j++) {
            float y = sums[i * f->cols + j];
            unsigned char *at = base + (size_t)(i * f->out.ld + j) * width;
            if (f->bias)
                y = y + f->bias[j];
            y = one_nan(y);
            if (f->out.round_bf16)
                y = oct_bf16_round(y);
            if (f->out.store == OCT_GEMM_FOLD) {
                float old;
                memcpy(&old, at, 4);
                y = one_nan(old + y);
            }
            if (width == 2) {
                const uint16_t h = oct_bf16_from_f32(y);
                memcpy(at, &h, 2);
            } else {
                memcpy(at, &y, 4);
            }
        }
    for (int64_t i = 0; i < f->rows; i++)
        for (int64_t j = 0; j < f->cols; j++) {
            const size_t at = (size_t)(base - expected) + (size_t)(i * f->out.ld + j) * width;
            if (memcmp(expected + at, f->buffer + at, width) != 0) {
                uint32_t want = 0, got = 0;
                memcpy(&want, expected + at, width);
                memcpy(&got, f->buffer + at, width);
                fail_msg("C[%lld][%lld] = %08x, %08x required", (long long)i, (long long)j, got,
                         want);
            }
        }
    assert_memory_equal(expected, f->buffer, f->bytes); /* canaries */
    free(expected);
}

#endif
