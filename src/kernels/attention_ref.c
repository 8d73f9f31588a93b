/* The inner loops of attention in scalar C. */
#include "kernels/attention.h"

#include <math.h>
#include <string.h>

#include "numeric/bf16.h"
#include "numeric/fmath.h"

enum { TILE = OCT_ATTENTION_TILE, LANES = OCT_ATTENTION_LANES };

static void load_ref(const oct_attention_rows *src, float *dst, int64_t ld)
{
    const int64_t padded_rows = (src->rows + LANES - 1) / LANES * LANES;
    memset(dst, 0, (size_t)(padded_rows * ld) * sizeof *dst);
    for (int64_t r = 0; r < src->rows; r++) {
        float *row = dst + r * ld;
        if (src->dtype == OCT_DTYPE_F32) {
            memcpy(row, (const float *)src->data + r * src->stride, (size_t)src->dim * sizeof *row);
        } else {
            const uint16_t *from = (const uint16_t *)src->data + r * src->stride;
            for (int64_t d = 0; d < src->dim; d++)
                row[d] = oct_bf16_to_f32(from[d]);
        }
    }
}

static void store_ref(const float *src, int64_t ld, float factor, const oct_attention_rows *dst)
{
    for (int64_t r = 0; r < dst->rows; r++) {
        const float *row = src + r * ld;
        if (dst->dtype == OCT_DTYPE_F32) {
            float *to = (float *)dst->data + r * dst->stride;
            for (int64_t d = 0; d < dst->dim; d++)
                to[d] = row[d] * factor;
        } else {
            uint16_t *to = (uint16_t *)dst->data + r * dst->stride;
            for (int64_t d = 0; d < dst->dim; d++)
                to[d] = oct_bf16_from_f32(row[d] * factor);
        }
    }
}

static void transpose_ref(const float *src, int64_t ld_src, int64_t rows, int64_t cols, float *dst,
                          int64_t ld_dst)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            dst[c * ld_dst + r] = src[r * ld_src + c];
}

static void product_ref(const oct_attention_product *p)
{
    for (int64_t m = 0; m < p->rows; m++) {
        for (int64_t n = p->terms == OCT_ATTENTION_TERMS_ALL_FROM_ROW_ON ? m : 0; n < p->cols;
             n++) {
            const int64_t first = p->terms == OCT_ATTENTION_TERMS_FROM_ROW ? m : 0;
            const int64_t end =
                p->terms == OCT_ATTENTION_TERMS_UP_TO_COLUMN && n + 1 < p->depth ? n + 1 : p->depth;
            float c = p->accumulate ? p->c[m * p->ldc + n] : 0.0f;
            for (int64_t k = first; k < end; k++)
                c = fmaf(p->a[m * p->a_row + k * p->a_depth], p->b[k * p->ldb + n], c);
            p->c[m * p->ldc + n] = c;
        }
    }
}

static void scale_columns_ref(float *c, int64_t rows, int64_t cols, const float *factor_n)
{
    for (int64_t m = 0; m < rows; m++)
        for (int64_t n = 0; n < cols; n++)
            c[m * TILE + n] *= factor_n[n];
}

static void column_dots_ref(const float *a, const float *b, int64_t rows, int64_t cols,
                            float *dot_n)
{
    for (int64_t n = 0; n < cols; n++) {
        float dot = 0.0f;
        for (int64_t m = 0; m < rows; m++)
            dot = fmaf(a[m * TILE + n], b[m * TILE + n], dot);
        dot_n[n] = dot;
    }
}

static void softmax_ref(float *s, int64_t keys, int64_t queries, float scale, bool diagonal,
                        float *max_n, float *sum_n, float *rescale_n)
{
    for (int64_t n = 0; n < queries; n++) {
        float max = max_n[n];
        for (int64_t j = 0; j < keys; j++) {
            const float score = diagonal && j > n ? -INFINITY : s[j * TILE + n] * scale;
            s[j * TILE + n] = score;
            max = score > max ? score : max; /* a NaN score leaves max alone and shows in P */
        }
        float sum = 0.0f;
        for (int64_t j = 0; j < keys; j++) {
            const float p = oct_expf(s[j * TILE + n] - max);
            s[j * TILE + n] = p;
            sum += p;
        }
        rescale_n[n] = oct_expf(max_n[n] - max);
        max_n[n] = max;
        sum_n[n] = fmaf(sum_n[n], rescale_n[n], sum);
    }
}

static void softmax_backward_ref(float *s, float *dp, int64_t keys, int64_t queries, float scale,
                                 bool diagonal, const float *lse_n, const float *delta_n)
{
    for (int64_t j = 0; j < keys; j++) {
        for (int64_t n = diagonal ? j : 0; n < queries; n++) {
            const int64_t at = j * TILE + n;
            const float p = oct_expf(s[at] * scale - lse_n[n]);
            s[at] = p;
            dp[at] = p * (dp[at] - delta_n[n]);
        }
    }
}

void oct_attention_kernels_ref(oct_attention_kernels *kernels)
{
    *kernels = (oct_attention_kernels){
        .load = load_ref,
        .store = store_ref,
        .transpose = transpose_ref,
        .product = product_ref,
        .scale_columns = scale_columns_ref,
        .column_dots = column_dots_ref,
        .softmax = softmax_ref,
        .softmax_backward = softmax_backward_ref,
    };
}
