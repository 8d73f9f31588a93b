/* octet matmul LEFT RIGHT --layout L -o OUT.npy: the product of two quantized tensors, as training
 * computes it. Both operands and the output are in memory. */
#include <stdio.h>
#include <string.h>

#include "cli/quantized.h"
#include "cli/tool.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/matmul.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

static const char name[] = "matmul";

static const char *const layouts[] = {
    [OCT_LAYOUT_NN] = "NN", [OCT_LAYOUT_NT] = "NT", [OCT_LAYOUT_TN] = "TN"};

typedef struct job {
    oct_tool tool;
    oct_layout layout;
    oct_groups groups; /* count 0: a plain product */
    const char *left_prefix, *right_prefix;
    oct_quantized_files left, right;
    int64_t m, n; /* of one product; m counts the rows of all groups but for TN */
    oct_gemm_out out;
    oct_npy_writer writer;
} job;

static bool is_stack(const job *j)
{
    return j->groups.count > 0 && j->layout != OCT_LAYOUT_TN;
}

/* --- what is multiplied ----------------------------------------------------------------------- */

static oct_status check_dims(const oct_quantized *q, int ndim, const char *prefix, const char *side,
                             oct_err *err)
{
    char text[200];
    if (q->shape.ndim != ndim)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply: the %s operand has shape %s, %d dims are required (%s)",
                        side, oct_npy_shape_text(&q->shape, text), ndim, prefix);
    return OCT_OK;
}

static oct_status check_axis(const oct_quantized *q, int axis, const job *j, const char *prefix,
                             const char *side, oct_err *err)
{
    if (q->format == OCT_TOOL_MXFP8 && q->axis != axis)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply: the blocks of the %s operand run along axis %d, axis %d "
                        "is required for --layout %s (%s)",
                        side, q->axis, axis, layouts[j->layout], prefix);
    return OCT_OK;
}

static oct_status check(job *j, oct_err *err)
{
    const oct_quantized *left = &j->left.about, *right = &j->right.about;
    const bool tn = j->layout == OCT_LAYOUT_TN, nt = j->layout == OCT_LAYOUT_NT;
    if (left->format != right->format)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply: the formats are %s and %s, equal ones are required (%s, "
                        "%s)",
                        oct_tool_formats[left->format], oct_tool_formats[right->format],
                        j->left_prefix, j->right_prefix);
    OCT_TRY(check_dims(left, 2, j->left_prefix, "left", err));
    OCT_TRY(check_dims(right, is_stack(j) ? 3 : 2, j->right_prefix, "right", err));
    OCT_TRY(check_axis(left, tn ? -2 : -1, j, j->left_prefix, "left", err));
    OCT_TRY(check_axis(right, nt ? -1 : -2, j, j->right_prefix, "right", err));
    const int64_t *l = left->shape.dims, *r = right->shape.dims + (is_stack(j) ? 1 : 0);
    const int64_t k_left = tn ? l[0] : l[1], k_right = nt ? r[1] : r[0];
    if (k_left != k_right)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply: --layout %s contracts %lld with %lld, equal dims are "
                        "required (%s, %s)",
                        layouts[j->layout], (long long)k_left, (long long)k_right, j->left_prefix,
                        j->right_prefix);
    if (is_stack(j) && right->shape.dims[0] != j->groups.count)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply: the right operand holds %lld matrices, %lld are required "
                        "by --groups (%s)",
                        (long long)right->shape.dims[0], (long long)j->groups.count,
                        j->right_prefix);
    const int64_t rows = j->groups.count ? j->groups.ends[j->groups.count - 1] : l[0];
    if (rows != l[0])
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply: the groups have %lld rows together, %lld are required "
                        "(--groups, %s)",
                        (long long)rows, (long long)l[0], j->left_prefix);
    j->m = tn ? l[1] : l[0];
    j->n = nt ? r[0] : r[1];
    return OCT_OK;
}

/* --- 8-bit operands --------------------------------------------------------------------------- */

static oct_status load(job *j, const oct_npy *npy, void **out, oct_err *err)
{
    OCT_TRY(
        oct_arena_array(&j->tool.memory, npy->count, oct_npy_dtype_bytes(npy->dtype), out, err));
    return oct_npy_read(npy, 0, npy->count, *out, err);
}

static oct_status load_mx_scales(job *j, const oct_quantized_files *files, oct_operand *operand,
                                 oct_err *err)
{
    const oct_quantized *q = &files->about;
    operand->scales = operand->format->scale_layout(operand);
    OCT_TRY(oct_arena_alloc(&j->tool.memory, oct_tensor_bytes(&operand->scales),
                            &operand->scales.data, err));
    uint8_t *pairs = operand->scales.data;
    for (int64_t s = 0; s < q->segments.count; s++) {
        const int64_t start = oct_quantized_segment_start(q, s);
        const int64_t rows = q->segments.ends[s] - start;
        OCT_TRY(oct_quantized_read_pairs(files, s, start, rows, &j->tool.scratch, pairs, err));
        pairs += oct_mx_col_pairs(NULL, rows) * q->cols * 2; /* axis -1 has one segment */
    }
    return OCT_OK;
}

/* Groups say how scales are laid out, which axis -1 of MXFP8 does not ask. */
static oct_status load_operand(job *j, const oct_quantized_files *files,
                               oct_orientation orientation, oct_operand *out, oct_err *err)
{
    const oct_quantized *q = &files->about;
    const bool mx = q->format == OCT_TOOL_MXFP8;
    *out = (oct_operand){.format = mx ? &oct_mxfp8_format : &oct_hif8_format,
                         .orientation = orientation,
                         .logical_dtype = OCT_DTYPE_F32};
    out->data = (oct_tensor){.dtype = out->format->data_dtype, .ndim = q->shape.ndim};
    memcpy(out->data.shape, q->shape.dims, (size_t)q->shape.ndim * sizeof(int64_t));
    OCT_TRY(load(j, &files->data, &out->data.data, err));
    if (q->shape.ndim == 2)
        out->groups = mx && q->axis == -1 ? j->groups : q->groups;
    if (mx)
        return load_mx_scales(j, files, out, err);
    out->scales = (oct_tensor){.dtype = OCT_DTYPE_F32, .ndim = q->scale_shape.ndim};
    out->scales.shape[0] = q->scale_shape.dims[0];
    return load(j, &files->scale, &out->scales.data, err);
}

static oct_status multiply_quantized(job *j, oct_err *err)
{
    oct_operand left, right;
    char both[OCT_NPY_PATH_BYTES];
    (void)snprintf(both, sizeof both, "%.1000s, %.1000s", j->left_prefix, j->right_prefix);
    const oct_matmul_label label = {.fqn = both, .phase = layouts[j->layout]};
    const oct_run run = {.exec = &j->tool.exec};
    OCT_TRY(load_operand(j, &j->left,
                         j->layout == OCT_LAYOUT_TN ? OCT_ORIENTATION_COL : OCT_ORIENTATION_ROW,
                         &left, err));
    OCT_TRY(load_operand(j, &j->right,
                         j->layout == OCT_LAYOUT_NT ? OCT_ORIENTATION_ROW : OCT_ORIENTATION_COL,
                         &right, err));
    if (j->groups.count > 0)
        return oct_low_precision_grouped_matmul(&run, &label, &left, &right, j->layout, &j->groups,
                                                &j->out, err);
    return oct_low_precision_matmul(&run, &label, &left, &right, j->layout, &j->out, err);
}

/* --- operands without scales: the FP32-FMA product -------------------------------------------- */

static oct_status load_matrix(job *j, const oct_quantized_files *files, oct_matrix *out,
                              oct_err *err)
{
    const oct_quantized *q = &files->about;
    void *data = NULL, *wide = NULL;
    OCT_TRY(load(j, &files->data, &data, err));
    *out = (oct_matrix){
        .data = data, .dtype = OCT_DTYPE_BF16, .rows = q->rows, .cols = q->cols, .ld = q->cols};
    if (q->format == OCT_TOOL_BF16)
        return OCT_OK;
    OCT_TRY(oct_arena_array(&j->tool.memory, files->data.count, sizeof(float), &wide, err));
    const uint8_t *codes = data;
    float *values = wide;
    for (int64_t i = 0; i < files->data.count; i++)
        values[i] = oct_e4m3_decode(codes[i]);
    out->data = wide;
    out->dtype = OCT_DTYPE_F32;
    return OCT_OK;
}

static oct_status multiply_plain(job *j, oct_err *err)
{
    oct_matrix left, right;
    OCT_TRY(load_matrix(j, &j->left, &left, err));
    OCT_TRY(load_matrix(j, &j->right, &right, err));
    const oct_status status =
        oct_gemm_grouped(&j->tool.exec, &left, &right, &j->groups, j->layout, &j->out, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "product of '%s' and '%s'", j->left_prefix, j->right_prefix);
    return OCT_OK;
}

/* --- the command ------------------------------------------------------------------------------ */

static oct_status run(job *j, const char *groups, const char *output, oct_err *err)
{
    OCT_TRY(oct_tool_open(&j->tool, err));
    OCT_TRY(oct_tool_groups(groups, &j->tool.memory, &j->groups, err));
    OCT_TRY(oct_quantized_open(j->left_prefix, &j->tool.memory, &j->left, err));
    OCT_TRY(oct_quantized_open(j->right_prefix, &j->tool.memory, &j->right, err));
    OCT_TRY(check(j, err));
    const bool stacked_out = j->layout == OCT_LAYOUT_TN && j->groups.count > 0;
    oct_npy_shape shape = {.ndim = 2, .dims = {j->m, j->n}};
    if (stacked_out)
        shape = (oct_npy_shape){.ndim = 3, .dims = {j->groups.count, j->m, j->n}};
    const bool wide = j->out.dtype == OCT_DTYPE_F32;
    int64_t count = 0;
    if (__builtin_mul_overflow(j->m, j->n, &count) ||
        __builtin_mul_overflow(count, stacked_out ? j->groups.count : 1, &count))
        return OCT_FAIL(err, OCT_E_NOMEM, "the product has too many elements (%s, %s)",
                        j->left_prefix, j->right_prefix);
    OCT_TRY(oct_arena_array(&j->tool.memory, count, wide ? sizeof(float) : sizeof(uint16_t),
                            &j->out.data, err));
    j->out.ld = j->n;
    const oct_tool_format format = j->left.about.format;
    OCT_TRY(format == OCT_TOOL_MXFP8 || format == OCT_TOOL_HIF8 ? multiply_quantized(j, err)
                                                                : multiply_plain(j, err));
    OCT_TRY(oct_npy_create(output, wide ? OCT_NPY_F32 : OCT_NPY_U16, &shape, &j->writer, err));
    OCT_TRY(oct_npy_append(&j->writer, j->out.data, count, err));
    return oct_npy_finish(&j->writer, err);
}

int oct_command_matmul(int argc, char **argv)
{
    static const char *const dtypes[] = {"bf16", "f32"};
    const char *prefixes[2] = {NULL, NULL}, *layout = NULL, *groups = NULL, *dtype = "bf16",
               *output = NULL;
    const oct_tool_option options[] = {
        {"--layout", &layout}, {"--groups", &groups}, {"--dtype", &dtype}, {"-o", &output}};
    if (oct_tool_arguments(name, argc, argv, options, sizeof options / sizeof options[0], NULL,
                           NULL, prefixes, 2) != 0)
        return OCT_EXIT_USAGE;
    if (!layout || !output)
        return oct_tool_missing(name, !layout ? "--layout" : "-o OUT.npy");
    const int l = oct_tool_word(name, "--layout", layout, layouts, 3);
    const int d = l < 0 ? -1 : oct_tool_word(name, "--dtype", dtype, dtypes, 2);
    if (d < 0)
        return OCT_EXIT_USAGE;
    static job j;
    oct_err err = {0};
    j.layout = (oct_layout)l;
    j.left_prefix = prefixes[0];
    j.right_prefix = prefixes[1];
    j.out.dtype = d == 0 ? OCT_DTYPE_BF16 : OCT_DTYPE_F32;
    const oct_status status = run(&j, groups, output, &err);
    oct_npy_discard(&j.writer);
    oct_quantized_close(&j.left);
    oct_quantized_close(&j.right);
    oct_tool_close(&j.tool);
    return status == OCT_OK ? OCT_EXIT_OK : oct_cli_fail(status, &err);
}
