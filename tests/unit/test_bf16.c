#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "numeric/bf16.h"

static void to_f32__all_words__upper_half(void **state)
{
    (void)state;
    for (uint32_t word = 0; word < 0x10000u; word++)
        assert_int_equal(oct_f32_bits(oct_bf16_to_f32((uint16_t)word)), word << 16);
}

static void from_f32__exact_values__round_trip(void **state)
{
    (void)state;
    for (uint32_t word = 0; word < 0x10000u; word++) {
        const uint16_t found = oct_bf16_from_f32(oct_bf16_to_f32((uint16_t)word));
        const int is_nan = (word & 0x7fffu) > 0x7f80u;
        assert_int_equal(found, is_nan ? word | 0x40u : word); /* NaN becomes quiet */
    }
}

static void from_f32__around_mid_points__nearest_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t word = 0; word < 0xff80u; word++) {
        if ((word & 0x7fffu) >= 0x7f80u)
            continue;
        const uint32_t tie = word << 16 | 0x8000u;
        assert_int_equal(oct_bf16_from_f32(oct_f32_from_bits(tie - 1u)), word);
        assert_int_equal(oct_bf16_from_f32(oct_f32_from_bits(tie)), word + (word & 1u));
        assert_int_equal(oct_bf16_from_f32(oct_f32_from_bits(tie + 1u)), word + 1u);
    }
}

static void from_f32__edges__inf_nan_and_subnormals(void **state)
{
    (void)state;
    assert_int_equal(oct_bf16_from_f32(INFINITY), 0x7f80);
    assert_int_equal(oct_bf16_from_f32(0x1.fffffep+127f), 0x7f80); /* rounds up to Inf */
    assert_int_equal(oct_bf16_from_f32(0x1.fep+127f), 0x7f7f);
    assert_int_equal(oct_bf16_from_f32(-0.0f), 0x8000);
    assert_int_equal(oct_bf16_from_f32(oct_f32_from_bits(0x00010000u)), 0x0001);
    assert_int_equal(oct_bf16_from_f32(oct_f32_from_bits(0x7f800001u)), 0x7fc0);
    assert_int_equal(oct_bf16_from_f32(oct_f32_from_bits(0xffffffffu)), 0xffff);
    assert_true(oct_bf16_round(1.00390625f) == 1.0f);
    assert_true(oct_bf16_round(-1.01171875f) == -1.015625f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(to_f32__all_words__upper_half),
        cmocka_unit_test(from_f32__exact_values__round_trip),
        cmocka_unit_test(from_f32__around_mid_points__nearest_ties_to_even),
        cmocka_unit_test(from_f32__edges__inf_nan_and_subnormals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
