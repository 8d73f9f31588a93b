/* Codecs of single numbers. Functions with a plain result are defined for every argument, cannot
 * fail and may be called from any thread. A decoded value is exact; a NaN is quiet, but for BF16,
 * whose bits are kept. Sources: OCP OFP8 1.0 and OCP MX 1.0 (docs/spec/mxfp8.md), arXiv 2409.16626
 * (docs/spec/hif8.md). */
#ifndef OCTET_CODEC_H
#define OCTET_CODEC_H

#include <octet/export.h>
#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* BF16, the upper half of an FP32 word. Encoding: nearest, ties to even, subnormals kept, overflow
 * gives Inf, a NaN stays one (quiet; sign and upper payload kept). */
OCTET_API float octet_bf16_decode(uint16_t code);
OCTET_API uint16_t octet_bf16_encode(float x);

/* E4M3 "fn", S.EEEE.MMM, bias 7, NaN 7f and ff, no infinity, largest 448. Encoding: nearest, ties
 * to even, the sign of zeros and underflows kept, NaN gives 7f or ff by its sign. saturate: beyond
 * 448 and Inf give +-448; otherwise beyond 464 and Inf give NaN. MX uses saturate.
 * docs/spec/mxfp8.md, "E4M3". */
OCTET_API float octet_e4m3_decode(uint8_t code);
OCTET_API uint8_t octet_e4m3_encode(float x, bool saturate);

/* E8M0, 2^(code - 127), NaN ff. Encoding of |x|: up to the next power of two; 00 for everything up
 * to 2^-127; ff for NaN, Inf and beyond 2^127. docs/spec/mxfp8.md, "E8M0". */
OCTET_API float octet_e8m0_decode(uint8_t code);
OCTET_API uint8_t octet_e8m0_encode(float x);

/* HiF8, tapered precision, one zero 00, NaN 80, +-Inf 6f and ef, largest 32768. Encoding: nearest,
 * ties away from zero, from 40960 on Inf, NaN 80. saturate (as the NPU's quantizer does): +-32768
 * instead of Inf, 00 for NaN. Training does not saturate. docs/spec/hif8.md, "Encoding". */
OCTET_API float octet_hif8_decode(uint8_t code);
OCTET_API uint8_t octet_hif8_encode(float x, bool saturate);

/* The E8M0 scale of an MX block of E4M3 elements whose largest magnitude is |amax|; 00 for 0, ff
 * for Inf and NaN. round_up (scale_alg 1, training): the smallest power of two >= fl32(amax / 448).
 * floor (scale_alg 0, OCP): 2^(floor(log2 amax) - 8). docs/spec/mxfp8.md, "Scale of a block". */
OCTET_API uint8_t octet_mx_scale_round_up(float amax);
OCTET_API uint8_t octet_mx_scale_floor(float amax);

/* The FP32 scale of HiF8 current scaling: fl32(amax / format_max) if amax is finite and not
 * negative and the quotient is >= 2^-126, else 1.0. format_max is 15 for inputs and weights and 224
 * for gradients; below 1, above FLT_MAX or NaN gives 1.0. docs/spec/hif8.md, "Scale". */
OCTET_API float octet_hif8_scale(float amax, float format_max);

/* Codes of single numbers. */
typedef enum octet_element {
    OCTET_ELEMENT_E4M3 = 0, /* uint8 */
    OCTET_ELEMENT_E8M0 = 1, /* uint8 */
    OCTET_ELEMENT_HIF8 = 2, /* uint8 */
    OCTET_ELEMENT_BF16 = 3  /* uint16, in the byte order of the machine */
} octet_element;

/* "e4m3", "e8m0", "hif8", "bf16"; "unknown" for another number. Static string. Any thread. */
OCTET_API const char *octet_element_name(octet_element element);

/* codes[i] = code of x[i], as the functions above, on the calling thread.
 * saturate: E4M3 and HiF8 only; true is an error for the others.
 * x: in, FP32 [count]. count: 0 or more; with 0 both pointers may be NULL.
 * codes: out, uint8 or uint16 [count]; any alignment; does not overlap x.
 * Errors: E_ARGUMENT, E_UNSUPPORTED (saturate). Any thread. */
OCTET_API octet_status octet_encode(octet_element element, bool saturate, const float *x,
                                    int64_t count, void *codes,
                                    octet_error *error) OCTET_MUST_CHECK;

/* x[i] = value of codes[i]. codes: in, uint8 or uint16 [count], any alignment. x: out, FP32
 * [count], does not overlap codes. Errors: E_ARGUMENT. Any thread. */
OCTET_API octet_status octet_decode(octet_element element, const void *codes, int64_t count,
                                    float *x, octet_error *error) OCTET_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
