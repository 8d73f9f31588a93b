/* E8M0: one byte b = 2^(b-127), ff = NaN; no sign, zero or infinity. The scale of an MX block.
 * Source: OCP Microscaling Formats (MX) v1.0; docs/spec/mxfp8.md. */
#ifndef OCT_NUMERIC_E8M0_H
#define OCT_NUMERIC_E8M0_H

#include <stdint.h>

#include "numeric/bf16.h"

/* The shared-exponent rule: 1 rounds up (training), 0 is the OCP floor rule (tools and tests). */
typedef enum oct_mx_rule { OCT_MX_RULE_FLOOR = 0, OCT_MX_RULE_ROUND_UP = 1 } oct_mx_rule;

/* The value of a code, exact (2^-127 is an FP32 subnormal); a quiet NaN for ff. */
static inline float oct_e8m0_decode(uint8_t code)
{
    if (code == 0)
        return 0x1p-127f;
    if (code == 0xff)
        return oct_f32_from_bits(0x7fc00000u);
    return oct_f32_from_bits((uint32_t)code << 23);
}

/* The smallest code whose value is >= x, x >= 0 (00 for everything up to 2^-127). NaN, infinity and
 * what exceeds 2^127 give ff. */
uint8_t oct_e8m0_encode(float x);

/* Scale byte of an MX block of E4M3 elements whose largest magnitude is amax (>= 0).
 * FLOOR: clamp(floor(log2 amax) - 8, -127, 127) + 127. ROUND_UP: oct_e8m0_encode(fl32(amax / 448)).
 * Both: 00 for amax 0, ff for Inf and NaN. The element code is E4M3sat(x * 2^(127 - byte)). */
uint8_t oct_mx_scale_byte(float amax, oct_mx_rule rule);

/* 2^(127 - byte), the exact factor of the elements, for byte < ff (2^-127 for fe). */
float oct_mx_element_factor(uint8_t byte);

#endif
