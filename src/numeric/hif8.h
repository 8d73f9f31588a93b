/* HiFloat8: one byte S | dot | exponent | mantissa with tapered precision. One zero (00), one NaN
 * (80),
 * +-Inf (6f, ef); largest finite magnitude 32768, least normal 2^-15, least subnormal 2^-22.
 * Source: arXiv 2409.16626; docs/spec/hif8.md. */
#ifndef OCT_NUMERIC_HIF8_H
#define OCT_NUMERIC_HIF8_H

#include <stdbool.h>
#include <stdint.h>

/* The value of a code, exact; a quiet NaN for 80. */
float oct_hif8_decode(uint8_t code);

/* Nearest value, ties away from zero; there is no negative zero. |x| >= 40960 gives 6f/ef, NaN 80.
 * saturate: |x| >= 40960 gives 6e/ee instead, NaN 00. */
uint8_t oct_hif8_encode(float x, bool saturate);

/* Scale of current scaling: fl32(amax / format_max) if amax is finite and the quotient a normal
 * number (>= 2^-126), else 1.0. Always finite, positive and normal. format_max: 15 for inputs and
 * weights, 224 for gradients. */
float oct_hif8_scale(float amax, float format_max);

#endif
