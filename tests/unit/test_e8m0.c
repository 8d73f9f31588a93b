#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "numeric/bf16.h"
#include "numeric/e8m0.h"

static void decode__all_codes__power_of_two(void **state)
{
    (void)state;
    for (int code = 0; code < 255; code++) {
        assert_true((double)oct_e8m0_decode((uint8_t)code) == ldexp(1.0, code - 127));
        assert_int_equal(oct_e8m0_encode(oct_e8m0_decode((uint8_t)code)), code);
    }
    assert_true(isnan(oct_e8m0_decode(0xff)));
}

static void encode__between_codes__smallest_not_below(void **state)
{
    (void)state;
    assert_int_equal(oct_e8m0_encode(0.0f), 0);
    assert_int_equal(oct_e8m0_encode(0x1p-149f), 0);
    assert_int_equal(oct_e8m0_encode(0x1.000004p-127f), 1); /* the next subnormal */
    for (int code = 1; code < 255; code++) {
        const float value = oct_e8m0_decode((uint8_t)code);
        assert_int_equal(oct_e8m0_encode(nextafterf(value, 0.0f)), code);
        assert_int_equal(oct_e8m0_encode(nextafterf(value, INFINITY)), code + 1);
    }
    assert_int_equal(oct_e8m0_encode(INFINITY), 0xff);
    assert_int_equal(oct_e8m0_encode(NAN), 0xff);
}

/* floor(log2 x) + 127 of a positive finite x. */
static int biased_exponent(float x)
{
    int e;
    (void)frexp((double)x, &e);
    return e - 1 + 127;
}

static void scale_byte__finite_amax__follows_both_rules(void **state)
{
    (void)state;
    uint32_t bits = 1;
    for (int i = 0; i < 200000; i++, bits = (bits + 2099999999u) % 0x7f800000u) {
        const float amax = oct_f32_from_bits(bits);
        if (!(amax > 0.0f))
            continue;
        const int floored = biased_exponent(amax) - 8;
        assert_int_equal(oct_mx_scale_byte(amax, OCT_MX_RULE_FLOOR), floored < 0 ? 0 : floored);
        const float s = amax / 448.0f;
        const int byte = oct_mx_scale_byte(amax, OCT_MX_RULE_ROUND_UP);
        assert_true(ldexp(1.0, byte - 127) >= (double)s);
        assert_true(byte == 0 || ldexp(1.0, byte - 128) < (double)s);
    }
}

static void scale_byte__edges__as_written(void **state)
{
    (void)state;
    for (int rule = 0; rule < 2; rule++) {
        assert_int_equal(oct_mx_scale_byte(0.0f, (oct_mx_rule)rule), 0x00);
        assert_int_equal(oct_mx_scale_byte(-0.0f, (oct_mx_rule)rule), 0x00);
        assert_int_equal(oct_mx_scale_byte(0x1p-149f, (oct_mx_rule)rule), 0x00);
        assert_int_equal(oct_mx_scale_byte(INFINITY, (oct_mx_rule)rule), 0xff);
        assert_int_equal(oct_mx_scale_byte(NAN, (oct_mx_rule)rule), 0xff);
        assert_int_equal(oct_mx_scale_byte(448.0f, (oct_mx_rule)rule), 127);
    }
    assert_int_equal(oct_mx_scale_byte(0x1.c00002p+8f, OCT_MX_RULE_FLOOR), 127);
    assert_int_equal(oct_mx_scale_byte(0x1.c00002p+8f, OCT_MX_RULE_ROUND_UP), 128);
    /* fl32(amax / 448) rounds down to 2^-127 here. */
    assert_int_equal(oct_mx_scale_byte(oct_f32_from_bits(0x04600001u), OCT_MX_RULE_ROUND_UP), 0);
    assert_int_equal(oct_mx_scale_byte(oct_f32_from_bits(0x04600002u), OCT_MX_RULE_ROUND_UP), 1);
    assert_int_equal(oct_mx_scale_byte(0x1.fffffep+127f, OCT_MX_RULE_FLOOR), 246);
    assert_int_equal(oct_mx_scale_byte(0x1.fffffep+127f, OCT_MX_RULE_ROUND_UP), 247);
}

static void element_factor__every_byte__inverse_of_the_scale(void **state)
{
    (void)state;
    for (int byte = 0; byte < 255; byte++)
        assert_true((double)oct_mx_element_factor((uint8_t)byte) == ldexp(1.0, 127 - byte));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode__all_codes__power_of_two),
        cmocka_unit_test(encode__between_codes__smallest_not_below),
        cmocka_unit_test(scale_byte__finite_amax__follows_both_rules),
        cmocka_unit_test(scale_byte__edges__as_written),
        cmocka_unit_test(element_factor__every_byte__inverse_of_the_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
