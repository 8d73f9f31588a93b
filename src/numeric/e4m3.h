/* E4M3: one byte S.EEEE.MMM, bias 7, subnormals, no infinity, NaN = 7f and ff. Largest magnitude
 * 448. Source: OCP 8-bit Floating Point Specification (OFP8) 1.0; docs/spec/mxfp8.md. */
#ifndef OCT_NUMERIC_E4M3_H
#define OCT_NUMERIC_E4M3_H

#include <stdbool.h>
#include <stdint.h>

/* The value of a code, exact; a quiet NaN for 7f and ff (sign kept). */
float oct_e4m3_decode(uint8_t code);

/* Nearest value, ties to even; the sign of zero and of an underflow is kept; NaN gives 7f or ff.
 * saturate: everything above 448, infinity included, gives +-448. Otherwise everything above 464
 * (the mid-point to the next step) gives NaN. */
uint8_t oct_e4m3_encode(float x, bool saturate);

#endif
