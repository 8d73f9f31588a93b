/* Public codecs: every golden row, arrays, refusals. */
#include "api_fixture.h"

#include <math.h>

static float bf16_byte(uint8_t code)
{
    return octet_bf16_decode((uint16_t)(code << 8));
}

static void check_codes(const char *name, octet_element element, float (*decode)(uint8_t))
{
    golden file;
    if (!golden_open(&file, name))
        return;
    assert_true(golden_line(&file));
    while (golden_row(&file)) {
        const uint8_t code = (uint8_t)hex_word(file.fields[0], 2);
        const float wanted = strtof(file.fields[1], NULL);
        float many[3] = {0};
        const uint8_t codes[3] = {code, code, code};
        assert_int_equal(octet_decode(element, codes, 3, many, NULL), OCTET_OK);
        const float found = decode(code);
        if (isnan(wanted)) {
            assert_true(isnan(found) && isnan(many[2]));
            continue;
        }
        assert_int_equal(bits_of(found), bits_of(wanted));
        assert_int_equal(bits_of(many[2]), bits_of(wanted));
    }
    golden_close(&file);
}

static void decode__every_code__golden(void **state)
{
    (void)state;
    check_codes("e4m3_codes.csv", OCTET_ELEMENT_E4M3, octet_e4m3_decode);
    check_codes("e8m0_codes.csv", OCTET_ELEMENT_E8M0, octet_e8m0_decode);
    check_codes("hif8_codes.csv", OCTET_ELEMENT_HIF8, octet_hif8_decode);
}

static void bf16_decode__signaling_nan__keeps_its_bits(void **state)
{
    (void)state;
    const uint16_t code = 0xff81;
    float x = 0.0f;
    assert_int_equal(octet_decode(OCTET_ELEMENT_BF16, &code, 1, &x, NULL), OCTET_OK);
    assert_int_equal(bits_of(x), 0xff810000u);
}

static void check_encode(const char *name, octet_element element, uint8_t (*encode)(float, bool))
{
    golden file;
    if (!golden_open(&file, name))
        return;
    assert_true(golden_line(&file));
    while (golden_row(&file)) {
        const float x[2] = {1.0f, from_bits(hex_word(file.fields[0], 8))};
        for (int saturate = 0; saturate < 2; saturate++) {
            const uint8_t wanted = (uint8_t)hex_word(file.fields[1 + saturate], 2);
            uint8_t codes[2] = {0};
            assert_int_equal(octet_encode(element, saturate, x, 2, codes, NULL), OCTET_OK);
            if (encode(x[1], saturate) != wanted || codes[1] != wanted)
                fail_msg("%s line %lld: found %02x and %02x, wanted %02x", name,
                         (long long)file.number, encode(x[1], saturate), codes[1], wanted);
        }
    }
    golden_close(&file);
}

static void encode__both_modes__golden(void **state)
{
    (void)state;
    check_encode("e4m3_encode.csv", OCTET_ELEMENT_E4M3, octet_e4m3_encode);
    check_encode("hif8_encode.csv", OCTET_ELEMENT_HIF8, octet_hif8_encode);
}

static void check_bf16(const char *name, octet_element element, bool saturate)
{
    golden file;
    if (!golden_open(&file, name))
        return;
    uint32_t word = 0;
    while (golden_line(&file))
        for (const char *text = file.line; *text; text += 2, word++) {
            const uint16_t source = (uint16_t)word;
            float x = 0.0f;
            uint8_t code = 0;
            assert_int_equal(octet_decode(OCTET_ELEMENT_BF16, &source, 1, &x, NULL), OCTET_OK);
            assert_int_equal(octet_encode(element, saturate, &x, 1, &code, NULL), OCTET_OK);
            assert_int_equal(code, hex_word(text, 2));
        }
    assert_int_equal(word, 0x10000);
    golden_close(&file);
}

static void encode__every_bf16__golden(void **state)
{
    (void)state;
    check_bf16("e4m3_bf16.hex", OCTET_ELEMENT_E4M3, true);
    check_bf16("hif8_bf16.hex", OCTET_ELEMENT_HIF8, false);
}

static void bf16__ties_and_specials__nearest_even(void **state)
{
    (void)state;
    assert_int_equal(octet_bf16_encode(from_bits(0x3f808000)), 0x3f80);
    assert_int_equal(octet_bf16_encode(from_bits(0x3f818000)), 0x3f82);
    assert_int_equal(octet_bf16_encode(from_bits(0x3f808001)), 0x3f81);
    assert_int_equal(octet_bf16_encode(from_bits(0x7f7fffff)), 0x7f80);
    assert_int_equal(octet_bf16_encode(from_bits(0xff800001)), 0xffc0);
    assert_int_equal(bits_of(octet_bf16_decode(0x8001)), 0x80010000);
    assert_int_equal(bits_of(bf16_byte(0x3f)), 0x3f000000);
    const float x[2] = {1.0f, from_bits(0x3f808001)};
    uint8_t bytes[5] = {0}; /* at an odd address */
    uint16_t code;
    assert_int_equal(octet_encode(OCTET_ELEMENT_BF16, false, x, 2, bytes + 1, NULL), OCTET_OK);
    memcpy(&code, bytes + 3, sizeof code);
    assert_int_equal(code, 0x3f81);
}

static void e8m0_encode__between_powers__rounds_up(void **state)
{
    (void)state;
    assert_int_equal(octet_e8m0_encode(1.0f), 127);
    assert_int_equal(octet_e8m0_encode(1.5f), 128);
    assert_int_equal(octet_e8m0_encode(0.0f), 0);
    assert_int_equal(octet_e8m0_encode(from_bits(0x7f000001)), 0xff);
    uint8_t code = 0;
    const float x = 1.5f;
    assert_int_equal(octet_encode(OCTET_ELEMENT_E8M0, false, &x, 1, &code, NULL), OCTET_OK);
    assert_int_equal(code, 128);
}

static void scales__golden_amax__golden(void **state)
{
    (void)state;
    golden file;
    if (golden_open(&file, "mx_amax.csv")) {
        assert_true(golden_line(&file));
        while (golden_row(&file)) {
            const float amax = from_bits(hex_word(file.fields[0], 8));
            assert_int_equal(octet_mx_scale_floor(amax), hex_word(file.fields[1], 2));
            assert_int_equal(octet_mx_scale_round_up(amax), hex_word(file.fields[2], 2));
        }
        golden_close(&file);
    }
    if (golden_open(&file, "hif8_scale.csv")) {
        assert_true(golden_line(&file));
        while (golden_row(&file)) {
            const float amax = from_bits(hex_word(file.fields[0], 8));
            const float format_max = strtof(file.fields[1], NULL);
            assert_int_equal(bits_of(octet_hif8_scale(amax, format_max)),
                             hex_word(file.fields[2], 8));
        }
        golden_close(&file);
    }
    const float odd[] = {0.0f, -15.0f, 0.5f, INFINITY, NAN};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        assert_int_equal(bits_of(octet_hif8_scale(30.0f, odd[i])), bits_of(1.0f));
}

static void arrays__wrong_arguments__are_named(void **state)
{
    (void)state;
    octet_error error = {0};
    float x[4] = {0};
    uint8_t codes[16] = {0};
    octet_status s = octet_encode((octet_element)4, false, x, 4, codes, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_encode", "element is 4");
    s = octet_encode((octet_element)-1, false, x, 4, codes, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_encode", "element is -1");
    s = octet_encode(OCTET_ELEMENT_E4M3, false, NULL, 4, codes, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_encode", "x is NULL");
    s = octet_encode(OCTET_ELEMENT_E4M3, false, x, 4, NULL, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_encode", "codes is NULL");
    s = octet_encode(OCTET_ELEMENT_E4M3, false, x, -1, codes, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_encode", "count is -1");
    s = octet_encode(OCTET_ELEMENT_E4M3, false, x, INT64_MAX, codes, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_encode", "count is 9223372036854775807");
    s = octet_encode(OCTET_ELEMENT_E4M3, false, x, 4, (uint8_t *)x + 3, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_encode", "x overlaps codes");
    s = octet_encode(OCTET_ELEMENT_BF16, true, x, 4, codes, &error);
    check_refused(s, OCTET_E_UNSUPPORTED, &error, "octet_encode", "saturate is true");
    s = octet_encode(OCTET_ELEMENT_E8M0, true, x, 1, codes, &error);
    check_refused(s, OCTET_E_UNSUPPORTED, &error, "octet_encode", "saturate is true");
    s = octet_decode((octet_element)4, codes, 4, x, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_decode", "element is 4");
    s = octet_decode(OCTET_ELEMENT_HIF8, NULL, 4, x, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_decode", "codes is NULL");
    s = octet_decode(OCTET_ELEMENT_HIF8, codes, 4, NULL, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_decode", "x is NULL");
    s = octet_decode(OCTET_ELEMENT_HIF8, codes, 1, (float *)(void *)((uint8_t *)x + 1), &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_decode", "x is at an address");
    s = octet_decode(OCTET_ELEMENT_HIF8, x, 4, x, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_decode", "x overlaps codes");
    s = octet_encode((octet_element)9, false, x, 4, codes, NULL);
    assert_int_equal(s, OCTET_E_ARGUMENT);
    assert_int_equal(octet_encode(OCTET_ELEMENT_E4M3, false, NULL, 0, NULL, NULL), OCTET_OK);
    assert_int_equal(octet_decode(OCTET_ELEMENT_BF16, NULL, 0, NULL, NULL), OCTET_OK);
}

static void element_name__every_number__word(void **state)
{
    (void)state;
    assert_string_equal(octet_element_name(OCTET_ELEMENT_E4M3), "e4m3");
    assert_string_equal(octet_element_name(OCTET_ELEMENT_E8M0), "e8m0");
    assert_string_equal(octet_element_name(OCTET_ELEMENT_HIF8), "hif8");
    assert_string_equal(octet_element_name(OCTET_ELEMENT_BF16), "bf16");
    assert_string_equal(octet_element_name((octet_element)4), "unknown");
    assert_string_equal(octet_element_name((octet_element)-1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode__every_code__golden),
        cmocka_unit_test(bf16_decode__signaling_nan__keeps_its_bits),
        cmocka_unit_test(encode__both_modes__golden),
        cmocka_unit_test(encode__every_bf16__golden),
        cmocka_unit_test(bf16__ties_and_specials__nearest_even),
        cmocka_unit_test(e8m0_encode__between_powers__rounds_up),
        cmocka_unit_test(scales__golden_amax__golden),
        cmocka_unit_test(arrays__wrong_arguments__are_named),
        cmocka_unit_test(element_name__every_number__word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
