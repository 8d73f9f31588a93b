#include "kernels/dequantize.h"

#include <math.h>

#include "base/size.h"
#include "base/threads.h"
#include "numeric/bf16.h"
#include "numeric/e8m0.h"

enum { RUN_ELEMENTS = 65536 };

typedef struct job {
    const float *value; /* of a code */
    const uint8_t *codes, *pairs;
    int64_t cols, count;
    bool along_row;
    float scale;
    float *y;
} job;

static float multiply(float x, float scale)
{
    const float y = x * scale;
    return isnan(y) ? oct_f32_from_bits(0x7fc00000u) : y;
}

static void mx_row(void *arg, int64_t row, int thread)
{
    (void)thread;
    const job *j = arg;
    const int64_t cols = j->cols, padded = 2 * oct_ceil_div(cols, 64);
    for (int64_t c = 0; c < cols; c++) {
        const int64_t scale =
            j->along_row ? row * padded + c / 32 : (row / 64 * cols + c) * 2 + row / 32 % 2;
        const int64_t i = row * cols + c;
        j->y[i] = multiply(j->value[j->codes[i]], oct_e8m0_decode(j->pairs[scale]));
    }
}

void oct_mx_dequantize(const oct_exec *exec, const uint8_t *codes, const uint8_t *pairs,
                       int64_t rows, int64_t cols, bool along_row, float *y)
{
    job j = {.value = exec->kernels->gemm.tables[OCT_FORMAT_MXFP8].value,
             .codes = codes,
             .pairs = pairs,
             .cols = cols,
             .along_row = along_row,
             .y = y};
    oct_parallel_for(exec->threads, cols > 0 ? rows : 0, mx_row, &j);
}

static void hif8_run(void *arg, int64_t item, int thread)
{
    (void)thread;
    const job *j = arg;
    const int64_t end = oct_min_i64(j->count, (item + 1) * RUN_ELEMENTS);
    for (int64_t i = item * RUN_ELEMENTS; i < end; i++)
        j->y[i] = multiply(j->value[j->codes[i]], j->scale);
}

void oct_hif8_dequantize(const oct_exec *exec, const uint8_t *codes, int64_t count, float scale,
                         float *y)
{
    job j = {.value = exec->kernels->gemm.tables[OCT_FORMAT_HIF8].value,
             .codes = codes,
             .count = count,
             .scale = scale,
             .y = y};
    oct_parallel_for(exec->threads, oct_ceil_div(count, RUN_ELEMENTS), hif8_run, &j);
}
