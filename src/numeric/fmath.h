/* Own elementary functions, built from + - * / sqrt and fma only, so that every machine and every
 * instruction set computes the same bits. These scalar definitions are the meaning;
 * kernels/fmath_avx2.h and kernels/fmath_avx512.h hold the vector twins of the FP32 ones.
 *
 * NaN gives a quiet NaN with the operand's sign and payload; an invalid operand gives the NaN
 * 7fc00000. Errors in ulp are bounds that tests/unit/test_fmath.c measures. None sets errno. */
#ifndef OCT_NUMERIC_FMATH_H
#define OCT_NUMERIC_FMATH_H

#include <stdint.h>

/* e^x, at most 1 ulp. Subnormal results are rounded once; +Inf from 88.7229 on, 0 from -103.98
 * down; exp(0) = 1, exp(-Inf) = 0. */
float oct_expf(float x);

/* Natural logarithm, at most 1 ulp. log(+-0) = -Inf, log(x < 0) = NaN, log(+Inf) = +Inf; subnormal
 * operands are exact operands. */
float oct_logf(float x);

/* 1 / (1 + e^-x), at most 2.5 ulp; for x < 0 it is e^x / (1 + e^x), which keeps small values exact.
 */
float oct_sigmoidf(float x);

/* Sine and cosine of x radians for every finite x, at most 1 ulp (0.51 in practice); the argument
 * is reduced in FP64 below 2^30 and with the bits of 2/pi above. +-Inf gives NaN. */
float oct_sinf(float x);
float oct_cosf(float x);

/* FP64 versions for tables and schedules. exp, log: 2 ulp. sin, cos: 1e-15 absolute, |x| <= 2^30,
 * NaN beyond. */
double oct_exp(double x);
double oct_log(double x);
double oct_sin(double x);
double oct_cos(double x);

/* x^y = exp(y * log x) for x >= 0: relative error (3 + 2 |y ln x|) * 2^-52. pow(0, y) is 0 for
 * y > 0, 1 for y = 0, +Inf for y < 0; x < 0 gives NaN. */
double oct_pow(double x, double y);

/* x^n by repeated squaring, lowest bit of n first; 1 / x^-n for n < 0; powi(x, 0) = 1. */
double oct_powi(double x, int64_t n);

#endif
