#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "numeric/bf16.h"
#include "numeric/hif8.h"

/* Rows of the code table: first code, number of codes of one exponent, exponents in code order. */
typedef struct table_row {
    int first, mantissas, count;
    int exponents[16];
} table_row;

static const table_row table[] = {
    {0x08, 8, 1, {0}},
    {0x10, 8, 2, {1, -1}},
    {0x20, 8, 4, {2, 3, -2, -3}},
    {0x40, 4, 8, {4, 5, 6, 7, -4, -5, -6, -7}},
    {0x60, 2, 16, {8, 9, 10, 11, 12, 13, 14, 15, -8, -9, -10, -11, -12, -13, -14, -15}},
};

/* Magnitudes of codes 00..7f; 6f is 49152 here, the step that stands for infinity. */
static double magnitudes[128];

static int setup(void **state)
{
    (void)state;
    for (int m = 1; m < 8; m++)
        magnitudes[m] = ldexp(1.0, m - 23);
    for (size_t r = 0; r < sizeof table / sizeof *table; r++) {
        int code = table[r].first;
        for (int e = 0; e < table[r].count; e++) {
            for (int m = 0; m < table[r].mantissas; m++)
                magnitudes[code++] =
                    ldexp(1.0 + (double)m / table[r].mantissas, table[r].exponents[e]);
        }
    }
    return 0;
}

static void decode__all_codes__value_of_the_table(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        const double value = (double)oct_hif8_decode((uint8_t)code);
        const double wanted = code & 0x80 ? -magnitudes[code & 0x7f] : magnitudes[code & 0x7f];
        if (code == 0x80)
            assert_true(isnan(value));
        else if ((code & 0x7f) == 0x6f)
            assert_true(isinf(value) && (value < 0.0) == (code > 0x7f));
        else
            assert_true(value == wanted);
    }
    assert_int_equal(oct_f32_bits(oct_hif8_decode(0x00)), 0);
    assert_true(oct_hif8_decode(0x6e) == 32768.0f);
    assert_true(oct_hif8_decode(0x7e) == 0x1p-15f);
    assert_true(oct_hif8_decode(0x01) == 0x1p-22f);
}

/* The nearest of all magnitudes by search, ties to the larger one. */
static int nearest(float x, bool saturate)
{
    if (isnan(x))
        return saturate ? 0x00 : 0x80;
    const double size = fmin(fabs((double)x), 49152.0);
    int best = 0;
    for (int code = 1; code < 128; code++) {
        const double closer = fabs(size - magnitudes[code]) - fabs(size - magnitudes[best]);
        if (closer < 0.0 || (closer == 0.0 && magnitudes[code] > magnitudes[best]))
            best = code;
    }
    if (best == 0x6f && saturate)
        best = 0x6e;
    return best && signbit(x) ? best | 0x80 : best;
}

static void check(uint32_t bits)
{
    const float x = oct_f32_from_bits(bits);
    for (int saturate = 0; saturate < 2; saturate++) {
        const int wanted = nearest(x, saturate);
        if (oct_hif8_encode(x, saturate) != wanted)
            fail_msg("%08x, saturate %d: found %02x, wanted %02x", bits, saturate,
                     oct_hif8_encode(x, saturate), wanted);
    }
}

static void encode__around_every_value_and_mid_point__nearest_ties_away(void **state)
{
    (void)state;
    for (int code = 0; code < 128; code++) {
        double next = (double)INFINITY;
        for (int other = 0; other < 128; other++) {
            if (magnitudes[other] > magnitudes[code])
                next = fmin(next, magnitudes[other]);
        }
        if (isinf(next))
            continue;
        const float points[2] = {(float)magnitudes[code], (float)((magnitudes[code] + next) / 2.0)};
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

static void encode__decoded_code__is_that_code(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++)
        assert_int_equal(oct_hif8_encode(oct_hif8_decode((uint8_t)code), false), code);
}

static void encode__edges__as_written(void **state)
{
    (void)state;
    assert_int_equal(oct_hif8_encode(-0.0f, false), 0x00);
    assert_int_equal(oct_hif8_encode(-0x1.fffffep-24f, false), 0x00);
    assert_int_equal(oct_hif8_encode(-0x1p-23f, false), 0x81);
    assert_int_equal(oct_hif8_encode(0x1.8p-22f, false), 0x02);
    assert_int_equal(oct_hif8_encode(0x1.3ffffep+15f, false), 0x6e);
    assert_int_equal(oct_hif8_encode(40960.0f, false), 0x6f);
    assert_int_equal(oct_hif8_encode(40960.0f, true), 0x6e);
    assert_int_equal(oct_hif8_encode(-INFINITY, false), 0xef);
    assert_int_equal(oct_hif8_encode(-INFINITY, true), 0xee);
    assert_int_equal(oct_hif8_encode(-NAN, false), 0x80);
    assert_int_equal(oct_hif8_encode(-NAN, true), 0x00);
}

static void scale__valid_amax__is_the_quotient(void **state)
{
    (void)state;
    for (float amax = 0x1p-120f; amax < 0x1p127f; amax *= 1.37f) {
        assert_true(oct_hif8_scale(amax, 15.0f) == amax / 15.0f);
        assert_true(oct_hif8_scale(amax, 224.0f) ==
                    (amax / 224.0f < 0x1p-126f ? 1.0f : amax / 224.0f));
        const float x = amax / oct_hif8_scale(amax, 15.0f); /* amax itself reaches the maximum */
        assert_int_equal(oct_hif8_encode(x, false), 0x2f);
    }
}

static void scale__zero_nonfinite_or_subnormal__is_one(void **state)
{
    (void)state;
    const float format_max[2] = {15.0f, 224.0f};
    for (int i = 0; i < 2; i++) {
        assert_true(oct_hif8_scale(0.0f, format_max[i]) == 1.0f);
        assert_true(oct_hif8_scale(INFINITY, format_max[i]) == 1.0f);
        assert_true(oct_hif8_scale(NAN, format_max[i]) == 1.0f);
        assert_true(oct_hif8_scale(0x1p-149f, format_max[i]) == 1.0f);
        const float least = format_max[i] * 0x1p-126f;
        assert_true(oct_hif8_scale(least, format_max[i]) == 0x1p-126f);
        assert_true(oct_hif8_scale(least * 0.999f, format_max[i]) == 1.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode__all_codes__value_of_the_table),
        cmocka_unit_test(encode__around_every_value_and_mid_point__nearest_ties_away),
        cmocka_unit_test(encode__patterns_over_the_whole_range__nearest),
        cmocka_unit_test(encode__decoded_code__is_that_code),
        cmocka_unit_test(encode__edges__as_written),
        cmocka_unit_test(scale__valid_amax__is_the_quotient),
        cmocka_unit_test(scale__zero_nonfinite_or_subnormal__is_one),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
