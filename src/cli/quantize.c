/* octet quantize IN.npy --format F --axis A -o PREFIX: one strip of rows at a time, so that a
 * tensor may be larger than memory. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "cli/quantized.h"
#include "cli/tool.h"
#include "kernels/mx_scales.h"
#include "low_precision/hif8/hif8.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

static const char name[] = "quantize";

/* Elements in memory at a time: 16 MB as FP32. */
enum { STRIP_ELEMENTS = 1 << 22 };

typedef struct job {
    oct_quantized about;
    bool bf16; /* the uint16 of the source are BF16 */
    oct_tool tool;
    oct_npy source;
    oct_npy_writer data, scale;
    int64_t strip_rows;
    float *x; /* [strip_rows, cols] */
    void *work, *codes;
    uint8_t *pairs, *line;
    float amax, hif8_scale;
    int64_t scale_row; /* axis -2: rows of scales written so far */
} job;

/* Called with the rows first .. first + rows - 1 in job->x, all of one segment. */
typedef oct_status (*strip_fn)(job *j, int64_t segment, int64_t first, int64_t rows, oct_err *err);

static oct_status for_each_strip(job *j, int64_t segment, strip_fn run, oct_err *err)
{
    const int64_t end = j->about.segments.ends[segment], cols = j->about.cols;
    if (cols == 0)
        return OCT_OK; /* there may be very many empty rows */
    for (int64_t row = oct_quantized_segment_start(&j->about, segment); row < end;) {
        const int64_t rows = oct_min_i64(j->strip_rows, end - row);
        OCT_TRY(oct_npy_read_f32(&j->source, j->bf16, row * cols, rows * cols, j->work, j->x, err));
        OCT_TRY(run(j, segment, row, rows, err));
        row += rows;
    }
    return OCT_OK;
}

static oct_tensor strip_of(const job *j, int64_t rows)
{
    return oct_tensor_2d(j->x, OCT_DTYPE_F32, rows, j->about.cols);
}

/* --- MXFP8 ------------------------------------------------------------------------------------ */

static oct_status mx_row_strip(job *j, int64_t segment, int64_t first, int64_t rows, oct_err *err)
{
    (void)segment;
    (void)first;
    const oct_tensor x = strip_of(j, rows);
    const oct_mx_out out = {.row_codes = j->codes, .row_scales = j->pairs};
    OCT_TRY(oct_mx_quantize(&j->tool.exec, &x, NULL, (oct_mx_rule)j->about.scale_alg, &out, err));
    OCT_TRY(oct_npy_append(&j->data, j->codes, rows * j->about.cols, err));
    if (j->about.pairs)
        return oct_npy_append(&j->scale, j->pairs, rows * 2 * oct_ceil_div(j->about.cols, 64), err);
    const int64_t blocks = oct_ceil_div(j->about.cols, 32);
    oct_mx_row_scales_to_plain(j->pairs, rows, blocks, j->pairs);
    return oct_npy_append(&j->scale, j->pairs, rows * blocks, err);
}

/* Rows of scales that no block owns, up to row `to`. */
static oct_status pad_scales(job *j, int64_t to, oct_err *err)
{
    const int64_t bytes = 2 * j->about.cols;
    memset(j->line, 0, (size_t)bytes);
    for (; j->scale_row < to; j->scale_row++)
        OCT_TRY(oct_npy_append(&j->scale, j->line, bytes, err));
    return OCT_OK;
}

static oct_status mx_col_strip(job *j, int64_t segment, int64_t first, int64_t rows, oct_err *err)
{
    const int64_t cols = j->about.cols;
    const oct_tensor x = strip_of(j, rows);
    const oct_mx_out out = {.col_codes = j->codes, .col_scales = j->pairs};
    OCT_TRY(oct_mx_quantize(&j->tool.exec, &x, NULL, (oct_mx_rule)j->about.scale_alg, &out, err));
    OCT_TRY(oct_npy_append(&j->data, j->codes, rows * cols, err));
    if (j->about.pairs) {
        if (first == oct_quantized_segment_start(&j->about, segment))
            OCT_TRY(pad_scales(j, j->about.scale_rows[segment], err));
        j->scale_row += oct_ceil_div(rows, 64);
        return oct_npy_append(&j->scale, j->pairs, oct_ceil_div(rows, 64) * cols * 2, err);
    }
    const int64_t blocks = oct_ceil_div(rows, 32);
    for (int64_t b = 0; b < blocks; b += 2) { /* a line has room for two */
        const int64_t count = oct_min_i64(2, blocks - b);
        oct_mx_col_scales_to_plain(j->pairs + b * cols, count, cols, j->line);
        OCT_TRY(oct_npy_append(&j->scale, j->line, count * cols, err));
    }
    return OCT_OK;
}

static oct_status quantize_mxfp8(job *j, oct_err *err)
{
    const oct_groups *segments = &j->about.segments;
    for (int64_t s = 0; s < segments->count; s++)
        OCT_TRY(for_each_strip(j, s, j->about.axis == -1 ? mx_row_strip : mx_col_strip, err));
    if (j->about.axis == -2 && j->about.pairs)
        OCT_TRY(pad_scales(j, j->about.scale_rows[segments->count], err));
    return OCT_OK;
}

/* --- HiF8: first the largest magnitude of a segment, then its codes --------------------------- */

static oct_status hif8_amax_strip(job *j, int64_t segment, int64_t first, int64_t rows,
                                  oct_err *err)
{
    (void)segment;
    (void)first;
    const oct_tensor x = strip_of(j, rows);
    float amax = 0.0f;
    OCT_TRY(oct_hif8_amax(&j->tool.exec, &x, NULL, &amax, err));
    if (oct_f32_bits(amax) > oct_f32_bits(j->amax)) /* as bit patterns: a NaN wins */
        j->amax = amax;
    return OCT_OK;
}

static oct_status hif8_code_strip(job *j, int64_t segment, int64_t first, int64_t rows,
                                  oct_err *err)
{
    (void)segment;
    (void)first;
    const oct_tensor x = strip_of(j, rows);
    OCT_TRY(oct_hif8_quantize(&j->tool.exec, &x, NULL, &j->hif8_scale, j->about.saturate, j->codes,
                              err));
    return oct_npy_append(&j->data, j->codes, rows * j->about.cols, err);
}

static oct_status quantize_hif8(job *j, oct_err *err)
{
    const float format_max = j->about.role == OCT_TOOL_GRAD ? OCT_HIF8_FORMAT_MAX_GRADIENT
                                                            : OCT_HIF8_FORMAT_MAX_INPUT_WEIGHT;
    for (int64_t s = 0; s < j->about.segments.count; s++) {
        j->amax = 0.0f;
        OCT_TRY(for_each_strip(j, s, hif8_amax_strip, err));
        j->hif8_scale = oct_hif8_scale(j->amax, format_max);
        OCT_TRY(oct_npy_append(&j->scale, &j->hif8_scale, 1, err));
        OCT_TRY(for_each_strip(j, s, hif8_code_strip, err));
    }
    return OCT_OK;
}

/* --- formats without scales ------------------------------------------------------------------- */

static oct_status plain_strip(job *j, int64_t segment, int64_t first, int64_t rows, oct_err *err)
{
    (void)segment;
    (void)first;
    const int64_t count = rows * j->about.cols;
    uint8_t *bytes = j->codes;
    uint16_t *words = j->codes;
    for (int64_t i = 0; i < count; i++) {
        if (j->about.format == OCT_TOOL_BF16)
            words[i] = oct_bf16_from_f32(j->x[i]);
        else
            bytes[i] = oct_e4m3_encode(j->x[i], true);
    }
    return oct_npy_append(&j->data, j->codes, count, err);
}

/* --- the command ------------------------------------------------------------------------------ */

static oct_status open_source(job *j, const char *input, bool dtype_given, oct_err *err)
{
    OCT_TRY(oct_npy_open(input, &j->source, err));
    const oct_npy_dtype dtype = j->source.dtype;
    if (dtype == OCT_NPY_U8 || (dtype == OCT_NPY_U16) != j->bf16)
        return OCT_FAIL(
            err, OCT_E_SHAPE, "cannot quantize a tensor: found %s%s, %s is required (%s)",
            oct_npy_dtype_name(dtype), dtype_given ? " with --dtype" : "",
            j->bf16 ? "uint16" : "float16, float32, float64, or uint16 with --dtype bf16", input);
    j->about.shape = j->source.shape;
    return oct_quantized_derive(&j->about, input, &j->tool.memory, err);
}

static oct_status allocate(job *j, oct_err *err)
{
    const oct_quantized *q = &j->about;
    const int64_t cols = oct_max_i64(1, q->cols);
    const int64_t unit = q->format == OCT_TOOL_MXFP8 && q->axis == -2 ? 64 : 1;
    j->strip_rows = oct_max_i64(unit, STRIP_ELEMENTS / cols / unit * unit);
    j->strip_rows = oct_min_i64(j->strip_rows, oct_max_i64(1, oct_ceil_div(q->rows, 64)) * 64);
    int64_t elements = 0;
    if (__builtin_mul_overflow(j->strip_rows, cols, &elements))
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot hold %lld rows of %lld elements in memory (%s)",
                        (long long)j->strip_rows, (long long)cols, j->source.path);
    oct_arena *memory = &j->tool.memory;
    void *x = NULL, *pairs = NULL, *line = NULL;
    OCT_TRY(oct_arena_array(memory, elements, sizeof(float), &x, err));
    OCT_TRY(oct_arena_array(memory, elements, oct_npy_dtype_bytes(j->source.dtype), &j->work, err));
    OCT_TRY(oct_arena_array(memory, elements, sizeof(uint16_t), &j->codes, err));
    /* One pair of bytes for each 64 elements of a line, lines being as short as they may. */
    const int64_t pair_count = q->axis == -1 ? j->strip_rows * oct_ceil_div(cols, 64)
                                             : oct_ceil_div(j->strip_rows, 64) * cols;
    OCT_TRY(oct_arena_array(memory, oct_max_i64(2, pair_count), 2, &pairs, err));
    OCT_TRY(oct_arena_array(memory, oct_max_i64(2, cols), 2, &line, err));
    j->x = x;
    j->pairs = pairs;
    j->line = line;
    return OCT_OK;
}

static oct_status convert(job *j, oct_err *err)
{
    switch (j->about.format) {
    case OCT_TOOL_MXFP8:
        return quantize_mxfp8(j, err);
    case OCT_TOOL_HIF8:
        return quantize_hif8(j, err);
    case OCT_TOOL_E4M3:
    case OCT_TOOL_BF16:
    case OCT_TOOL_FORMAT_COUNT:
        break;
    }
    return for_each_strip(j, 0, plain_strip, err);
}

static oct_status write_files(job *j, const char *prefix, oct_err *err)
{
    char path[OCT_NPY_PATH_BYTES], about[OCT_NPY_PATH_BYTES];
    const oct_quantized *q = &j->about;
    OCT_TRY(oct_quantized_path(prefix, "data.npy", path, err));
    OCT_TRY(oct_npy_create(path, oct_quantized_data_dtype(q), &q->shape, &j->data, err));
    OCT_TRY(oct_quantized_path(prefix, "scale.npy", path, err));
    if (q->has_scales)
        OCT_TRY(oct_npy_create(path, q->format == OCT_TOOL_HIF8 ? OCT_NPY_F32 : OCT_NPY_U8,
                               &q->scale_shape, &j->scale, err));
    OCT_TRY(oct_quantized_path(prefix, "json", about, err));
    OCT_TRY(convert(j, err));
    /* What an earlier run left does not belong to these codes. Without the .json the files are no
     * tensor, so none can be read that is part old and part new. */
    (void)unlink(about);
    OCT_TRY(oct_npy_finish(&j->data, err));
    if (q->has_scales)
        OCT_TRY(oct_npy_finish(&j->scale, err));
    else
        (void)unlink(path);
    return oct_quantized_write_about(q, about, err);
}

static oct_status run(job *j, const char *input, const char *prefix, const char *groups,
                      bool dtype_given, oct_err *err)
{
    char path[OCT_NPY_PATH_BYTES];
    OCT_TRY(oct_tool_open(&j->tool, err));
    OCT_TRY(oct_quantized_path(prefix, "json", path, err));
    OCT_TRY(oct_tool_groups(groups, &j->tool.memory, &j->about.groups, err));
    OCT_TRY(open_source(j, input, dtype_given, err));
    OCT_TRY(allocate(j, err));
    return write_files(j, prefix, err);
}

int oct_command_quantize(int argc, char **argv)
{
    static const char *const axes[] = {"-1", "-2"}, *const algorithms[] = {"0", "1"},
                             *const layouts[] = {"plain", "pairs"},
                             *const dtypes[] = {"f32", "bf16"};
    const char *input = NULL, *format = NULL, *axis = NULL, *role = "input", *groups = NULL,
               *algorithm = "1", *layout = "plain", *dtype = NULL, *prefix = NULL;
    bool saturate = false;
    const oct_tool_option options[] = {{"--format", &format},       {"--axis", &axis},
                                       {"--role", &role},           {"--groups", &groups},
                                       {"--scale-alg", &algorithm}, {"--scale-layout", &layout},
                                       {"--dtype", &dtype},         {"-o", &prefix}};
    if (oct_tool_arguments(name, argc, argv, options, sizeof options / sizeof options[0],
                           "--saturate", &saturate, &input, 1) != 0)
        return OCT_EXIT_USAGE;
    if (!format || !axis || !prefix)
        return oct_tool_missing(name, !format ? "--format" : !axis ? "--axis" : "-o PREFIX");
    const int f = oct_tool_word(name, "--format", format, oct_tool_formats, OCT_TOOL_FORMAT_COUNT);
    const int a = f < 0 ? -1 : oct_tool_word(name, "--axis", axis, axes, 2);
    const int r =
        a < 0 ? -1 : oct_tool_word(name, "--role", role, oct_tool_roles, OCT_TOOL_ROLE_COUNT);
    const int g = r < 0 ? -1 : oct_tool_word(name, "--scale-alg", algorithm, algorithms, 2);
    const int l = g < 0 ? -1 : oct_tool_word(name, "--scale-layout", layout, layouts, 2);
    const int d = l < 0 ? -1 : oct_tool_word(name, "--dtype", dtype ? dtype : "f32", dtypes, 2);
    if (d < 0)
        return OCT_EXIT_USAGE;
    if (f != OCT_TOOL_MXFP8 && (g == 0 || l == 1))
        return oct_cli_usage(name, "%s is a setting of MXFP8: found --format %s, mxfp8 is required",
                             g == 0 ? "--scale-alg 0" : "--scale-layout pairs", format);
    if (f != OCT_TOOL_HIF8 && saturate)
        return oct_cli_usage(name,
                             "--saturate is a setting of HiF8: found --format %s, hif8 is "
                             "required (MXFP8 and E4M3 always saturate)",
                             format);

    static job j;
    oct_err err = {0};
    j.bf16 = d == 1;
    j.about = (oct_quantized){.format = (oct_tool_format)f,
                              .axis = a == 0 ? -1 : -2,
                              .role = (oct_tool_role)r,
                              .scale_alg = g,
                              .pairs = l == 1,
                              .saturate = saturate};
    const oct_status status = run(&j, input, prefix, groups, dtype != NULL, &err);
    oct_npy_discard(&j.data);
    oct_npy_discard(&j.scale);
    oct_npy_close(&j.source);
    oct_tool_close(&j.tool);
    return status == OCT_OK ? OCT_EXIT_OK : oct_cli_fail(status, &err);
}
