/* Sizes of operands, dequantization, and MXFP8 scales in other layouts. */
#include <string.h>

#include "api/api_check.h"
#include "base/size.h"
#include "kernels/dequantize.h"
#include "kernels/mx_scales.h"

octet_status octet_operand_bytes(const octet_operand *operand, size_t *codes_bytes,
                                 size_t *scales_bytes, octet_error *error)
{
    oct_api_operand o;
    OCT_API_TRY(oct_api_read_operand(operand, "octet_operand_bytes", "operand", &o, error));
    if (codes_bytes)
        *codes_bytes = o.codes_bytes;
    if (scales_bytes)
        *scales_bytes = o.scales_bytes;
    return OCTET_OK;
}

/* --- dequantize ------------------------------------------------------------------------------- */

static void dequantize_mxfp8(const oct_exec *exec, const oct_api_operand *o, float *y)
{
    const octet_operand *about = &o->about;
    const uint8_t *codes = about->codes, *scales = about->scales;
    const int64_t cols = about->cols;
    if (about->orientation == OCTET_ORIENTATION_ROW) {
        oct_mx_dequantize(exec, codes, scales, o->all_rows, cols, true, y);
        return;
    }
    for (int64_t s = 0, row = 0, pair = 0; s < oct_api_segment_count(o); s++) {
        const int64_t rows = oct_api_segment_end(o, s) - row;
        oct_mx_dequantize(exec, codes + row * cols, scales + pair * cols * 2, rows, cols, false,
                          y + row * cols);
        row += rows;
        pair += oct_mx_col_pairs(NULL, rows);
    }
}

static void dequantize_hif8(const oct_exec *exec, const oct_api_operand *o, float *y)
{
    const octet_operand *about = &o->about;
    const uint8_t *codes = about->codes;
    for (int64_t s = 0, row = 0; s < oct_api_segment_count(o); s++) {
        const int64_t rows = oct_api_segment_end(o, s) - row;
        oct_hif8_dequantize(exec, codes + row * about->cols, rows * about->cols,
                            ((const float *)about->scales)[s], y + row * about->cols);
        row += rows;
    }
}

octet_status octet_dequantize(const octet_context *context, const octet_operand *operand, float *y,
                              size_t y_bytes, octet_error *error)
{
    static const char function[] = "octet_dequantize";
    static void (*const run[])(const oct_exec *, const oct_api_operand *, float *) = {
        [OCTET_FORMAT_MXFP8] = dequantize_mxfp8, [OCTET_FORMAT_HIF8] = dequantize_hif8};
    oct_api_operand o;
    OCT_API_TRY(oct_api_check_compute(context, function, error));
    OCT_API_TRY(oct_api_read_operand(operand, function, "operand", &o, error));
    oct_api_region regions[3] = {
        {"y", y, o.codes_bytes * sizeof(float), y_bytes, _Alignof(float), true}};
    oct_api_operand_regions(&o, "operand->codes", "operand->scales", false, regions + 1);
    OCT_API_TRY(oct_api_check_regions(regions, 3, function, error));
    const oct_exec exec = oct_api_exec(context, NULL);
    if (o.codes_bytes > 0)
        run[o.about.format](&exec, &o, y);
    return OCTET_OK;
}

/* --- scale layouts ---------------------------------------------------------------------------- */

/* Scales that move as one: those of all rows (ROW), or of one segment (COL). */
typedef struct stretch {
    int64_t segment;
    int64_t pair_rows, block_rows;   /* COL: how many */
    int64_t first_pair, first_other; /* COL: rows of pairs, and rows of the other layout */
    size_t at, other, bytes;         /* in the operand, in the other layout, of pairs */
} stretch;

static bool is_npu_groups(const oct_api_operand *o, octet_scale_layout layout)
{
    return layout == OCTET_SCALE_LAYOUT_NPU && o->about.groups.count > 0;
}

/* Begin with {.segment = -1}. */
static bool next_stretch(const oct_api_operand *o, octet_scale_layout layout, stretch *s)
{
    const int64_t cols = o->about.cols, index = ++s->segment;
    if (o->about.orientation == OCTET_ORIENTATION_ROW) {
        s->bytes = o->scales_bytes;
        return index == 0;
    }
    if (index == oct_api_segment_count(o))
        return false;
    const int64_t start = oct_api_segment_end(o, index - 1), end = oct_api_segment_end(o, index);
    const bool plain = layout == OCTET_SCALE_LAYOUT_PLAIN;
    s->first_pair += s->pair_rows;
    s->first_other += plain ? s->block_rows : s->pair_rows;
    if (is_npu_groups(o, layout))
        s->first_other = start / 64 + index;
    s->pair_rows = oct_ceil_div(end - start, 64);
    s->block_rows = oct_ceil_div(end - start, 32);
    s->at = (size_t)(s->first_pair * cols * 2);
    s->other = (size_t)(s->first_other * cols * (plain ? 1 : 2));
    s->bytes = (size_t)(s->pair_rows * cols * 2);
    return true;
}

static size_t layout_bytes(const oct_api_operand *o, octet_scale_layout layout)
{
    const octet_operand *about = &o->about;
    const bool row = about->orientation == OCTET_ORIENTATION_ROW;
    if (is_npu_groups(o, layout) && !row)
        return (size_t)((about->rows / 64 + about->groups.count) * about->cols * 2);
    if (layout == OCTET_SCALE_LAYOUT_NPU)
        return o->scales_bytes;
    if (row)
        return (size_t)(o->all_rows * oct_ceil_div(about->cols, 32));
    stretch s = {.segment = -1};
    while (next_stretch(o, layout, &s))
        ;
    return (size_t)((s.first_other + s.block_rows) * about->cols);
}

/* Checks operand, layout and, unless `name` is NULL, the memory of both. */
static octet_status check_scales(const octet_operand *operand, octet_scale_layout layout,
                                 const char *name, const uint8_t *other, size_t other_bytes,
                                 bool load, const char *function, oct_api_operand *o, size_t *bytes,
                                 octet_error *error)
{
    OCT_API_TRY(oct_api_read_operand(operand, function, "operand", o, error));
    OCT_API_TRY(oct_api_check_range((int32_t)layout, OCTET_SCALE_LAYOUT_PLAIN,
                                    OCTET_SCALE_LAYOUT_NPU, function, "layout", error));
    const octet_operand *about = &o->about;
    if (about->format != OCTET_FORMAT_MXFP8)
        return oct_api_fail(error, OCTET_E_UNSUPPORTED, function,
                            "operand->format is %s, mxfp8 is required: it alone has more than one "
                            "layout of scales",
                            octet_format_name(about->format));
    int64_t npu = 0;
    if (__builtin_mul_overflow(about->rows / 64 + about->groups.count, about->cols, &npu) ||
        __builtin_mul_overflow(npu, 2, &npu))
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "operand->groups.count is %lld, fewer than 2^63 bytes of scales are "
                            "required",
                            (long long)about->groups.count);
    *bytes = layout_bytes(o, layout);
    if (!name)
        return OCTET_OK;
    const oct_api_region regions[] = {
        {"operand->scales", about->scales, o->scales_bytes, about->scales_bytes, 1, load},
        {name, other, *bytes, other_bytes, 1, !load}};
    return oct_api_check_regions(regions, 2, function, error);
}

octet_status octet_mx_scales_bytes(const octet_operand *operand, octet_scale_layout layout,
                                   size_t *bytes, octet_error *error)
{
    static const char function[] = "octet_mx_scales_bytes";
    oct_api_operand o;
    OCT_API_TRY(oct_api_check_pointer(bytes, function, "bytes", error));
    return check_scales(operand, layout, NULL, NULL, 0, false, function, &o, bytes, error);
}

octet_status octet_mx_scales_store(const octet_operand *operand, octet_scale_layout layout,
                                   uint8_t *out, size_t out_bytes, octet_error *error)
{
    oct_api_operand o;
    size_t bytes = 0;
    OCT_API_TRY(check_scales(operand, layout, "out", out, out_bytes, false, "octet_mx_scales_store",
                             &o, &bytes, error));
    const int64_t cols = o.about.cols;
    const uint8_t *scales = o.about.scales;
    if (bytes > 0)
        memset(out, 0, bytes);
    for (stretch s = {.segment = -1}; next_stretch(&o, layout, &s);) {
        if (s.bytes == 0)
            continue;
        if (layout == OCTET_SCALE_LAYOUT_NPU)
            memcpy(out + s.other, scales + s.at, s.bytes);
        else if (o.about.orientation == OCTET_ORIENTATION_ROW)
            oct_mx_row_scales_to_plain(scales, o.all_rows, oct_ceil_div(cols, 32), out);
        else
            oct_mx_col_scales_to_plain(scales + s.at, s.block_rows, cols, out + s.other);
    }
    return OCTET_OK;
}

octet_status octet_mx_scales_load(const octet_operand *operand, octet_scale_layout layout,
                                  const uint8_t *in, size_t in_bytes, octet_error *error)
{
    oct_api_operand o;
    size_t bytes = 0;
    OCT_API_TRY(check_scales(operand, layout, "in", in, in_bytes, true, "octet_mx_scales_load", &o,
                             &bytes, error));
    const int64_t cols = o.about.cols;
    uint8_t *scales = o.about.scales;
    for (stretch s = {.segment = -1}; next_stretch(&o, layout, &s);) {
        if (s.bytes == 0)
            continue;
        if (layout == OCTET_SCALE_LAYOUT_NPU)
            memcpy(scales + s.at, in + s.other, s.bytes);
        else if (o.about.orientation == OCTET_ORIENTATION_ROW)
            oct_mx_row_scales_to_pairs(in, o.all_rows, oct_ceil_div(cols, 32), scales);
        else
            oct_mx_col_scales_to_pairs(in + s.other, s.block_rows, cols, scales + s.at);
    }
    return OCTET_OK;
}
