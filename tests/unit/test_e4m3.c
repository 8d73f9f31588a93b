#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "numeric/bf16.h"
#include "numeric/e4m3.h"

/* S.EEEE.MMM, bias 7, from the words of the specification. */
static double value_of(int code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size =
        exponent ? ldexp(1.0 + mantissa / 8.0, exponent - 7) : ldexp(mantissa / 8.0, -6);
    return code & 0x80 ? -size : size;
}

static void decode__all_codes__value_of_the_fields(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        const float value = oct_e4m3_decode((uint8_t)code);
        assert_int_equal(oct_f32_bits(value) >> 31, code >> 7);
        if ((code & 0x7f) == 0x7f)
            assert_true(isnan(value));
        else
            assert_true((double)value == value_of(code));
    }
    assert_true(oct_e4m3_decode(0x7e) == 448.0f);
    assert_true(oct_e4m3_decode(0x08) == 0x1p-6f);
    assert_true(oct_e4m3_decode(0x01) == 0x1p-9f);
}

/* The nearest of all codes by search; ties to the even code; 480 stands for the overflow step. */
static int nearest(double x, bool saturate)
{
    const double size = fmin(fabs(x), 480.0);
    int best = 0;
    for (int code = 1; code <= 0x7f; code++) {
        const double value = code == 0x7f ? 480.0 : value_of(code);
        const double closer = fabs(size - value) - fabs(size - value_of(best));
        if (closer < 0.0 || (closer == 0.0 && code % 2 == 0))
            best = code;
    }
    if (best == 0x7f && saturate)
        best = 0x7e;
    return best | (signbit(x) ? 0x80 : 0);
}

static void check(uint32_t bits)
{
    const float x = oct_f32_from_bits(bits);
    for (int saturate = 0; saturate < 2; saturate++) {
        const int wanted =
            isnan(x) ? 0x7f | (int)(bits >> 24 & 0x80u) : nearest((double)x, saturate);
        if (oct_e4m3_encode(x, saturate) != wanted)
            fail_msg("%08x, saturate %d: found %02x, wanted %02x", bits, saturate,
                     oct_e4m3_encode(x, saturate), wanted);
    }
}

static void encode__around_every_value_and_mid_point__nearest_ties_to_even(void **state)
{
    (void)state;
    for (int code = 0; code <= 0x7e; code++) {
        const float value = (float)value_of(code);
        const float next = code == 0x7e ? 480.0f : (float)value_of(code + 1);
        const float points[2] = {value, (value + next) / 2.0f};
        for (int i = 0; i < 2; i++) {
            for (uint32_t ulp = 0; ulp < 5; ulp++) {
                check((oct_f32_bits(points[i]) + ulp - 2u) & 0x7fffffffu);
                check((oct_f32_bits(points[i]) + ulp - 2u) | 0x80000000u);
            }
        }
    }
}

static void encode__patterns_over_the_whole_range__nearest(void **state)
{
    (void)state;
    uint32_t bits = 0;
    for (int i = 0; i < 300000; i++, bits += 14323u * 65537u)
        check(bits);
    for (uint32_t word = 0; word < 0x10000u; word += 3)
        check(word << 16);
}

static void encode__zeros_and_underflow__keep_the_sign(void **state)
{
    (void)state;
    assert_int_equal(oct_e4m3_encode(0.0f, true), 0x00);
    assert_int_equal(oct_e4m3_encode(-0.0f, true), 0x80);
    assert_int_equal(oct_e4m3_encode(-0x1p-149f, true), 0x80);
    assert_int_equal(oct_e4m3_encode(0x1p-10f, false), 0x00); /* tie to even */
    assert_int_equal(oct_e4m3_encode(0x1.000002p-10f, false), 0x01);
}

static void encode__overflow__follows_the_mode(void **state)
{
    (void)state;
    assert_int_equal(oct_e4m3_encode(464.0f, false), 0x7e);
    assert_int_equal(oct_e4m3_encode(0x1.d00002p+8f, false), 0x7f);
    assert_int_equal(oct_e4m3_encode(-INFINITY, false), 0xff);
    assert_int_equal(oct_e4m3_encode(-INFINITY, true), 0xfe);
    assert_int_equal(oct_e4m3_encode(oct_f32_from_bits(0xffc00001u), true), 0xff);
    assert_int_equal(oct_e4m3_encode(oct_f32_from_bits(0x7f800001u), true), 0x7f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode__all_codes__value_of_the_fields),
        cmocka_unit_test(encode__around_every_value_and_mid_point__nearest_ties_to_even),
        cmocka_unit_test(encode__patterns_over_the_whole_range__nearest),
        cmocka_unit_test(encode__zeros_and_underflow__keep_the_sign),
        cmocka_unit_test(encode__overflow__follows_the_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
