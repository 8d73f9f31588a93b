#include "numeric/e4m3.h"

#include "numeric/bf16.h"

enum {
    MAX_BITS = 0x43e00000,       /* 448 as FP32 */
    MAX_TIE_BITS = 0x43e80000,   /* 464: half way from 448 to 480, which is no value */
    MIN_NORMAL_BITS = 0x3c800000 /* 2^-6 */
};

float oct_e4m3_decode(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    const uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
    if ((code & 0x7fu) == 0x7fu)
        return oct_f32_from_bits(sign | 0x7fc00000u);
    if (exponent == 0) {
        const float magnitude = (float)mantissa * 0x1p-9f;
        return oct_f32_from_bits(sign | oct_f32_bits(magnitude));
    }
    return oct_f32_from_bits(sign | (exponent + 120u) << 23 | mantissa << 20);
}

uint8_t oct_e4m3_encode(float x, bool saturate)
{
    const uint32_t bits = oct_f32_bits(x);
    const uint32_t sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (magnitude > (saturate ? (uint32_t)MAX_BITS : (uint32_t)MAX_TIE_BITS))
        return (uint8_t)(sign | (saturate ? 0x7eu : 0x7fu));
    if (magnitude < MIN_NORMAL_BITS) {
        /* One ulp of 2^14 is 2^-9, the subnormal step: the FP32 sum rounds for us, ties to even. */
        const float sum = oct_f32_from_bits(magnitude) + 0x1p14f;
        return (uint8_t)(sign | (oct_f32_bits(sum) - oct_f32_bits(0x1p14f)));
    }
    magnitude +=
        0x7ffffu + (magnitude >> 20 & 1u); /* 20 bits are dropped; a carry moves the exponent */
    return (uint8_t)(sign | ((magnitude >> 20) - (120u << 3)));
}
