/* octet dequantize PREFIX -o OUT.npy: the FP32 value of every element, code times scale. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "cli/quantized.h"
#include "cli/tool.h"
#include "kernels/dequantize.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

static const char name[] = "dequantize";

enum { STRIP_ELEMENTS = 1 << 22 };

typedef struct job {
    oct_tool tool;
    oct_quantized_files files;
    oct_npy_writer out;
    int64_t strip_rows;
    float *y;
    void *codes;
    uint8_t *pairs;
} job;

/* A NaN has one bit pattern here, as in the products (docs/spec/block-integer.md). */
static float clean(float x)
{
    return isnan(x) ? oct_f32_from_bits(0x7fc00000u) : x;
}

static oct_status strip(job *j, int64_t segment, int64_t first, int64_t rows, oct_err *err)
{
    const oct_quantized *q = &j->files.about;
    const int64_t count = rows * q->cols;
    const uint8_t *bytes = j->codes;
    const uint16_t *words = j->codes;
    float scale = 1.0f;
    OCT_TRY(oct_npy_read(&j->files.data, first * q->cols, count, j->codes, err));
    if (q->format == OCT_TOOL_MXFP8) {
        OCT_TRY(oct_quantized_read_pairs(&j->files, segment, first, rows, &j->tool.scratch,
                                         j->pairs, err));
        oct_mx_dequantize(&j->tool.exec, j->codes, j->pairs, rows, q->cols, q->axis == -1, j->y);
        return oct_npy_append(&j->out, j->y, count, err);
    }
    if (q->format == OCT_TOOL_HIF8) {
        OCT_TRY(oct_npy_read(&j->files.scale, segment, 1, &scale, err));
        oct_hif8_dequantize(&j->tool.exec, j->codes, count, scale, j->y);
        return oct_npy_append(&j->out, j->y, count, err);
    }
    for (int64_t i = 0; i < count; i++)
        j->y[i] = clean(q->format == OCT_TOOL_BF16 ? oct_bf16_to_f32(words[i])
                                                   : oct_e4m3_decode(bytes[i]));
    return oct_npy_append(&j->out, j->y, count, err);
}

static oct_status allocate(job *j, oct_err *err)
{
    const oct_quantized *q = &j->files.about;
    const int64_t cols = oct_max_i64(1, q->cols);
    j->strip_rows = oct_max_i64(64, STRIP_ELEMENTS / cols / 64 * 64);
    j->strip_rows = oct_min_i64(j->strip_rows, oct_max_i64(1, oct_ceil_div(q->rows, 64)) * 64);
    int64_t elements = 0;
    if (__builtin_mul_overflow(j->strip_rows, cols, &elements))
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot hold %lld rows of %lld elements in memory (%s)",
                        (long long)j->strip_rows, (long long)cols, j->files.data_path);
    void *y = NULL, *pairs = NULL;
    OCT_TRY(oct_arena_array(&j->tool.memory, elements, sizeof(float), &y, err));
    OCT_TRY(oct_arena_array(&j->tool.memory, elements, sizeof(uint16_t), &j->codes, err));
    const int64_t pair_count =
        q->axis == -1 ? j->strip_rows * oct_ceil_div(cols, 64) : j->strip_rows / 64 * cols;
    OCT_TRY(oct_arena_array(&j->tool.memory, pair_count, 2, &pairs, err));
    j->y = y;
    j->pairs = pairs;
    return OCT_OK;
}

static oct_status run(job *j, const char *prefix, const char *output, oct_err *err)
{
    OCT_TRY(oct_tool_open(&j->tool, err));
    OCT_TRY(oct_quantized_open(prefix, &j->tool.memory, &j->files, err));
    const oct_quantized *q = &j->files.about;
    OCT_TRY(allocate(j, err));
    OCT_TRY(oct_npy_create(output, OCT_NPY_F32, &q->shape, &j->out, err));
    for (int64_t s = 0; q->cols > 0 && s < q->segments.count; s++)
        for (int64_t row = oct_quantized_segment_start(q, s); row < q->segments.ends[s];) {
            const int64_t rows = oct_min_i64(j->strip_rows, q->segments.ends[s] - row);
            OCT_TRY(strip(j, s, row, rows, err));
            row += rows;
        }
    return oct_npy_finish(&j->out, err);
}

int oct_command_dequantize(int argc, char **argv)
{
    const char *prefix = NULL, *output = NULL;
    const oct_tool_option options[] = {{"-o", &output}};
    if (oct_tool_arguments(name, argc, argv, options, 1, NULL, NULL, &prefix, 1) != 0)
        return OCT_EXIT_USAGE;
    if (!output)
        return oct_tool_missing(name, "-o OUT.npy");
    static job j;
    oct_err err = {0};
    const oct_status status = run(&j, prefix, output, &err);
    oct_npy_discard(&j.out);
    oct_quantized_close(&j.files);
    oct_tool_close(&j.tool);
    return status == OCT_OK ? OCT_EXIT_OK : oct_cli_fail(status, &err);
}
