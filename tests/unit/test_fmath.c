/* Own elementary functions against the C library in FP64, which is right to far below an FP32 ulp.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "kernels/elementwise.h"
#include "numeric/bf16.h"
#include "numeric/fmath.h"

/* Distance of an FP32 result from the true value in ulps of the true value; huge if one is special
 * and the other is not. */
static double ulps_f32(float got, double want)
{
    if (isnan(want))
        return isnan(got) ? 0.0 : 1e9;
    if (isinf((float)want) || isinf(got))
        return (float)want == got ? 0.0 : 1e9;
    int exponent;
    (void)frexp(want, &exponent);
    if (exponent < -125)
        exponent = -125;
    return fabs((double)got - want) / ldexp(1.0, exponent - 24);
}

static double worst_ulps(float (*f)(float), double (*reference)(double), uint32_t stride)
{
    double worst = 0.0;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += stride) {
        const float x = oct_f32_from_bits((uint32_t)bits);
        const double distance = ulps_f32(f(x), reference((double)x));
        if (distance > worst)
            worst = distance;
    }
    return worst;
}

static double sigmoid_reference(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void fmath_f32__operands_over_all_exponents__stated_ulp(void **state)
{
    (void)state;
    const uint32_t stride = 2053; /* prime: hits every exponent and sign */
    assert_true(worst_ulps(oct_expf, exp, stride) <= 1.0);
    assert_true(worst_ulps(oct_logf, log, stride) <= 1.0);
    assert_true(worst_ulps(oct_sigmoidf, sigmoid_reference, stride) <= 2.5);
    assert_true(worst_ulps(oct_sinf, sin, stride) <= 1.0);
    assert_true(worst_ulps(oct_cosf, cos, stride) <= 1.0);
}

static void assert_same_f32(float got, float want)
{
    assert_int_equal(oct_f32_bits(got), oct_f32_bits(want));
}

static void expf__special_operands__defined_results(void **state)
{
    (void)state;
    assert_same_f32(oct_expf(0.0f), 1.0f);
    assert_same_f32(oct_expf(-0.0f), 1.0f);
    assert_same_f32(oct_expf(INFINITY), INFINITY);
    assert_same_f32(oct_expf(-INFINITY), 0.0f);
    assert_same_f32(oct_expf(0x1.62e43p+6f), INFINITY); /* above ln(2^128) */
    assert_true(oct_expf(0x1.62e42ep+6f) < INFINITY);
    assert_same_f32(oct_expf(-103.98f), 0.0f);
    assert_same_f32(oct_expf(-103.0f), 0x1p-149f); /* a subnormal, one rounding */
    assert_same_f32(oct_expf(-100.0f), (float)exp(-100.0));
    assert_int_equal(oct_f32_bits(oct_expf(oct_f32_from_bits(0xff812345u))), 0xffc12345u);
}

static void logf__special_operands__defined_results(void **state)
{
    (void)state;
    assert_same_f32(oct_logf(1.0f), 0.0f);
    assert_same_f32(oct_logf(0.0f), -INFINITY);
    assert_same_f32(oct_logf(-0.0f), -INFINITY);
    assert_same_f32(oct_logf(INFINITY), INFINITY);
    assert_int_equal(oct_f32_bits(oct_logf(-1.0f)), 0x7fc00000u);
    assert_int_equal(oct_f32_bits(oct_logf(-INFINITY)), 0x7fc00000u);
    assert_same_f32(oct_logf(0x1p-149f), (float)log(0x1p-149));
    assert_int_equal(oct_f32_bits(oct_logf(oct_f32_from_bits(0x7f800001u))), 0x7fc00001u);
}

static void sigmoidf__special_operands__defined_results(void **state)
{
    (void)state;
    assert_same_f32(oct_sigmoidf(0.0f), 0.5f);
    assert_same_f32(oct_sigmoidf(-0.0f), 0.5f);
    assert_same_f32(oct_sigmoidf(INFINITY), 1.0f);
    assert_same_f32(oct_sigmoidf(-INFINITY), 0.0f);
    assert_same_f32(oct_sigmoidf(-100.0f), oct_expf(-100.0f));
    assert_true(oct_sigmoidf(-18.0f) > 1.5e-8f && oct_sigmoidf(-18.0f) < 1.53e-8f);
    assert_true(isnan(oct_sigmoidf(NAN)));
}

static void sinf_cosf__special_and_large_operands__defined_results(void **state)
{
    (void)state;
    assert_same_f32(oct_sinf(0.0f), 0.0f);
    assert_same_f32(oct_sinf(-0.0f), -0.0f);
    assert_same_f32(oct_cosf(0.0f), 1.0f);
    assert_int_equal(oct_f32_bits(oct_sinf(INFINITY)), 0x7fc00000u);
    assert_int_equal(oct_f32_bits(oct_cosf(-INFINITY)), 0x7fc00000u);
    /* Around the change of reduction, and angles of rotary tables up to position 2^20. */
    for (int i = -1000; i <= 1000; i++) {
        const float large = 0x1p30f + 64.0f * (float)i;
        assert_true(ulps_f32(oct_sinf(large), sin((double)large)) <= 1.0);
        assert_true(ulps_f32(oct_cosf(-large), cos((double)large)) <= 1.0);
        const float angle = 1048575.0f * (1.0f + (float)i * 0x1p-11f);
        assert_true(ulps_f32(oct_sinf(angle), sin((double)angle)) <= 1.0);
        assert_true(ulps_f32(oct_cosf(angle), cos((double)angle)) <= 1.0);
    }
}

/* The kernels of every instruction set in every lane, in whole vectors and rests, NaNs with their
 * payload, and nothing written behind the last element. */
static void fmath_kernels__special_operands__bits_of_the_scalar_functions(void **state)
{
    (void)state;
    enum { MOST = 41 };
    static const uint32_t special[] = {
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000,
        0x80800000, 0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
        0x7fc00000, 0xffc00000, 0x7f800001, 0xff812345, 0x7fffffff, 0xffffffff, 0x42b17217,
        0x42b17218, 0xc2aeac50, 0xc2cff1b4, 0xc2cff1b5, 0xc2ce8ed0, 0x3f3504f3, 0x3f3504f2};
    float (*const scalar[])(float) = {oct_expf, oct_logf, oct_sigmoidf};
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        oct_elementwise_kernels kernels;
        oct_elementwise_kernels_init(&kernels, (oct_isa)isa);
        void (*const kernel[])(int64_t, const float *, float *) = {kernels.exp, kernels.log,
                                                                   kernels.sigmoid};
        for (int f = 0; f < 3; f++)
            for (int64_t n = 0; n <= MOST; n++)
                for (size_t first = 0; first < sizeof special / sizeof *special; first += 5) {
                    float x[MOST + 1], y[MOST + 1];
                    for (int64_t i = 0; i <= MOST; i++) {
                        x[i] = oct_f32_from_bits(
                            special[(first + (size_t)i) % (sizeof special / sizeof *special)]);
                        y[i] = 1234.5f;
                    }
                    kernel[f](n, x, y);
                    for (int64_t i = 0; i <= MOST; i++)
                        assert_same_f32(y[i], i < n ? scalar[f](x[i]) : 1234.5f);
                }
    }
}

static void assert_close_f64(double got, double want, double relative, double absolute)
{
    assert_true(fabs(got - want) <= relative * fabs(want) + absolute);
}

static void fmath_f64__dense_operands__stated_error(void **state)
{
    (void)state;
    for (int i = -20000; i <= 20000; i++) {
        const double x = (double)i * 0x1.0c6f7a0b5ed8dp-5;
        assert_close_f64(oct_exp(x), exp(x), 0x1p-51, 0x1p-1074);
        assert_close_f64(oct_log(exp(x)), log(exp(x)), 0x1p-51, 0.0);
        const double angle = x * fabs(x) * 1000.0; /* up to 4e8 */
        assert_close_f64(oct_sin(angle), sin(angle), 0.0, 1e-15);
        assert_close_f64(oct_cos(angle), cos(angle), 0.0, 1e-15);
    }
    assert_true(oct_exp(710.0) == (double)INFINITY);
    assert_true(oct_exp(-(double)INFINITY) == 0.0);
    assert_true(oct_log(0.0) == -(double)INFINITY);
    assert_true(isnan(oct_log(-1.0)));
    assert_close_f64(oct_log(0x1p-1074), log(0x1p-1074), 0x1p-51, 0.0);
    assert_true(isnan(oct_sin(0x1p31)));
}

static void pow__rope_bases_and_decays__stated_error(void **state)
{
    (void)state;
    for (int i = 0; i <= 64; i++) {
        const double y = -(double)i / 64.0;
        const double bound = (3.0 + 2.0 * fabs(y * log(10000.0))) * 0x1p-52;
        assert_close_f64(oct_pow(10000.0, y), pow(10000.0, y), bound, 0.0);
    }
    assert_true(oct_pow(0.0, 2.0) == 0.0);
    assert_true(oct_pow(0.0, 0.0) == 1.0);
    assert_true(oct_pow(0.0, -1.0) == (double)INFINITY);
    assert_true(isnan(oct_pow(-2.0, 2.0)));
}

static void powi__integer_exponents__squaring(void **state)
{
    (void)state;
    assert_true(oct_powi(3.0, 0) == 1.0);
    assert_true(oct_powi(3.0, 1) == 3.0);
    assert_true(oct_powi(3.0, 13) == 1594323.0);
    assert_true(oct_powi(2.0, -3) == 0.125);
    assert_true(oct_powi(0.0, 0) == 1.0);
    assert_true(oct_powi(-2.0, 3) == -8.0);
    assert_true(oct_powi(1.0, INT64_MIN) == 1.0);
    assert_close_f64(oct_powi(0.999, 100000), pow(0.999, 100000.0), 1e-11, 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fmath_f32__operands_over_all_exponents__stated_ulp),
        cmocka_unit_test(expf__special_operands__defined_results),
        cmocka_unit_test(logf__special_operands__defined_results),
        cmocka_unit_test(sigmoidf__special_operands__defined_results),
        cmocka_unit_test(sinf_cosf__special_and_large_operands__defined_results),
        cmocka_unit_test(fmath_kernels__special_operands__bits_of_the_scalar_functions),
        cmocka_unit_test(fmath_f64__dense_operands__stated_error),
        cmocka_unit_test(pow__rope_bases_and_decays__stated_error),
        cmocka_unit_test(powi__integer_exponents__squaring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
