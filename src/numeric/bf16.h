/* BF16: the upper half of an FP32 word. */
#ifndef OCT_NUMERIC_BF16_H
#define OCT_NUMERIC_BF16_H

#include <stdint.h>
#include <string.h>

static inline float oct_f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t oct_f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float oct_bf16_to_f32(uint16_t x)
{
    return oct_f32_from_bits((uint32_t)x << 16);
}

/* Nearest, ties to even; NaN stays NaN (quiet, sign and upper payload kept); subnormals kept. */
static inline uint16_t oct_bf16_from_f32(float x)
{
    const uint32_t bits = oct_f32_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* The FP32 value of x rounded to BF16. */
static inline float oct_bf16_round(float x)
{
    return oct_bf16_to_f32(oct_bf16_from_f32(x));
}

#endif
