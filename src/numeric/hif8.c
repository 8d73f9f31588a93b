#include "numeric/hif8.h"

#include "numeric/bf16.h"

enum {
    OVERFLOW_BITS = 0x47200000, /* 40960 = 1.25 * 2^15, half way to the step that is infinity */
    UNDERFLOW_BITS = 0x34000000 /* 2^-23, half of the least value */
};

/* Mantissa bits of a value with exponent +-e. */
static int mantissa_bits(int e)
{
    if (e <= 3)
        return 3;
    if (e <= 7)
        return 2;
    return e <= 15 ? 1 : 0;
}

float oct_hif8_decode(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    const uint32_t body = code & 0x7fu;
    if (body == 0)
        return sign ? oct_f32_from_bits(0x7fc00000u) : 0.0f;
    if (body == 0x6f)
        return oct_f32_from_bits(sign | 0x7f800000u);
    if (body < 0x08) /* dot 0000: 2^(M-23) */
        return oct_f32_from_bits(sign | (body + 127u - 23u) << 23);
    int exponent = 0, bits = 3;
    bool negative = false;
    if (body >= 0x60) { /* dot 11: s eee M */
        exponent = 8 + (int)(body >> 1 & 7u);
        negative = body >> 4 & 1u;
        bits = 1;
    } else if (body >= 0x40) { /* dot 10: s ee MM */
        exponent = 4 + (int)(body >> 2 & 3u);
        negative = body >> 4 & 1u;
        bits = 2;
    } else if (body >= 0x20) { /* dot 01: s e MMM */
        exponent = 2 + (int)(body >> 3 & 1u);
        negative = body >> 4 & 1u;
    } else if (body >= 0x10) { /* dot 001: s MMM */
        exponent = 1;
        negative = body >> 3 & 1u;
    }
    const uint32_t mantissa = body & ((1u << bits) - 1u);
    const uint32_t biased = (uint32_t)(127 + (negative ? -exponent : exponent));
    return oct_f32_from_bits(sign | biased << 23 | mantissa << (23 - bits));
}

/* The 7 bits of a normal value: exponent e in -15..15, mantissa m of mantissa_bits(|e|) bits. */
static uint32_t normal_code(int e, uint32_t m)
{
    const uint32_t negative = e < 0;
    const uint32_t size = (uint32_t)(e < 0 ? -e : e);
    if (size == 0)
        return 0x08u | m;
    if (size == 1)
        return 0x10u | negative << 3 | m;
    if (size <= 3)
        return 0x20u | negative << 4 | (size - 2u) << 3 | m;
    if (size <= 7)
        return 0x40u | negative << 4 | (size - 4u) << 2 | m;
    return 0x60u | negative << 4 | (size - 8u) << 1 | m;
}

uint8_t oct_hif8_encode(float x, bool saturate)
{
    const uint32_t bits = oct_f32_bits(x);
    const uint32_t sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return saturate ? 0x00 : 0x80;
    if (magnitude >= OVERFLOW_BITS)
        return (uint8_t)(sign | (saturate ? 0x6eu : 0x6fu));
    if (magnitude < UNDERFLOW_BITS)
        return 0x00;
    int e = (int)(magnitude >> 23) - 127;
    if (e == -23)
        return (uint8_t)(sign | 0x01u);
    magnitude +=
        1u << (22 - mantissa_bits(e < 0 ? -e : e)); /* half a step: ties go away from zero */
    e = (int)(magnitude >> 23) - 127;
    if (e < -15)
        return (uint8_t)(sign | (uint32_t)(e + 23));
    /* After a carry the mantissa is zero, whatever its width is now. */
    const uint32_t m = (magnitude & 0x7fffffu) >> (23 - mantissa_bits(e < 0 ? -e : e));
    return (uint8_t)(sign | normal_code(e, m));
}

float oct_hif8_scale(float amax, float format_max)
{
    const float scale = amax / format_max;
    const bool is_valid = oct_f32_bits(amax) < 0x7f800000u && scale >= 0x1p-126f;
    return is_valid ? scale : 1.0f;
}
