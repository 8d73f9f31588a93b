/* The meaning of the quantizers, one element at a time. */
#include "kernels/quantize_kernels.h"

#include "base/size.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

static float load(const void *x, oct_dtype dtype, int64_t i)
{
    return dtype == OCT_DTYPE_BF16 ? oct_bf16_to_f32(((const uint16_t *)x)[i])
                                   : ((const float *)x)[i];
}

/* One MX block: count <= 32 elements, stride apart in x and code_stride apart in codes. */
static void mx_block(const void *x, oct_dtype dtype, int64_t first, int64_t stride, int64_t count,
                     oct_mx_rule rule, uint8_t *codes, int64_t code_stride, uint8_t *scale)
{
    uint32_t amax = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t magnitude = oct_f32_bits(load(x, dtype, first + i * stride)) & 0x7fffffffu;
        amax = magnitude > amax ? magnitude : amax;
    }
    *scale = oct_mx_scale_byte(oct_f32_from_bits(amax), rule);
    for (int64_t i = 0; i < count; i++) {
        const float value = load(x, dtype, first + i * stride);
        codes[i * code_stride] =
            *scale == 0xff ? 0x00 : oct_e4m3_encode(value * oct_mx_element_factor(*scale), true);
    }
}

static void mx_rows(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales,
                    int64_t scale_ld)
{
    for (int64_t row = 0; row < m; row++) {
        for (int64_t block = 0; block < 2 * oct_ceil_div(n, 64); block++) {
            const int64_t count = oct_max_i64(0, oct_min_i64(32, n - 32 * block));
            mx_block(x, dtype, row * ld + 32 * block, 1, count, rule,
                     codes + row * code_ld + 32 * block, 1, scales + row * scale_ld + block);
        }
    }
}

static void mx_cols(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales)
{
    for (int64_t col = 0; col < n; col++) {
        for (int64_t block = 0; block < 2; block++) {
            const int64_t count = oct_max_i64(0, oct_min_i64(32, m - 32 * block));
            mx_block(x, dtype, 32 * block * ld + col, ld, count, rule,
                     codes + 32 * block * code_ld + col, code_ld, scales + 2 * col + block);
        }
    }
}

static float amax(const void *x, oct_dtype dtype, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t magnitude = oct_f32_bits(load(x, dtype, i)) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return oct_f32_from_bits(largest);
}

static void hif8_encode(const void *x, oct_dtype dtype, int64_t n, float scale, bool saturate,
                        uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++)
        codes[i] = oct_hif8_encode(load(x, dtype, i) / scale, saturate);
}

void oct_quantize_kernels_ref(oct_quantize_kernels *kernels)
{
    kernels->mx_rows = mx_rows;
    kernels->mx_cols = mx_cols;
    kernels->amax = amax;
    kernels->hif8_encode = hif8_encode;
}
