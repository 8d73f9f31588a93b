/* Text from outside: what is well-formed, and what is made of the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "verify/quote.h"
#include "verify/verify.h"

static void utf8_repair__bytes_of_no_character__question_marks(void **state)
{
    static const struct {
        const char *text, *repaired;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"\xc3\xbc \xe2\x82\xac \xf0\x9f\x90\x99", "\xc3\xbc \xe2\x82\xac \xf0\x9f\x90\x99"},
        {"cut \xc3", "cut ?"},
        {"cut \xe2\x82", "cut ??"},
        {"cut \xf0\x9f\x90", "cut ???"},
        {"\xe2\x82z", "??z"},
        {"\xff\xfe", "??"},
        {"\xc0\xaf", "??"},           /* overlong */
        {"\xed\xa0\x80", "???"},      /* a surrogate */
        {"\xf4\x90\x80\x80", "????"}, /* beyond U+10FFFF */
        {"\x80\xc3\xbc", "?\xc3\xbc"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "%s", cases[i].text);
        assert_int_equal(oct_utf8_is_valid(text), strcmp(text, cases[i].repaired) == 0);
        oct_utf8_repair(text);
        assert_string_equal(text, cases[i].repaired);
        assert_true(oct_utf8_is_valid(text));
    }
}

/* What a check found may be the message of a program, cut in the middle of a character: the report
 * that holds it has to be written all the same. */
static void verify_check__found_is_cut__report_can_be_written(void **state)
{
    char path[700] = "";
    (void)state;
    for (size_t i = 0; i + 2 < sizeof path; i += 2)
        (void)memcpy(path + i, "\xc3\xbc", 3);
    json_t *result = json_object();
    (void)oct_verify_check(result, false, "it runs", "it does", "xy%s", path);
    char *text = json_dumps(result, 0);
    assert_non_null(text);
    assert_non_null(strstr(text, "\xc3\xbc?\""));
    free(text);
    json_decref(result);
}

static void verify_quote__odd_names__read_back_by_json(void **state)
{
    static const char *const names[] = {"plain", "a: b #c", "\"d\" 'e' \\f", "tab\there",
                                        "\xc3\xbc"};
    oct_err err = {0};
    char out[64];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(oct_verify_quote(names[i], out, sizeof out, &err), OCT_OK);
        json_t *back = json_loads(out, JSON_DECODE_ANY, NULL);
        assert_string_equal(json_string_value(back), names[i]);
        json_decref(back);
    }
    assert_int_equal(oct_verify_quote("\xff", out, sizeof out, &err), OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, "UTF-8"));
    assert_int_equal(oct_verify_quote("twelve bytes", out, 14, &err), OCT_E_CONFIG);
    assert_int_equal(oct_verify_quote("twelve bytes", out, 15, &err), OCT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_repair__bytes_of_no_character__question_marks),
        cmocka_unit_test(verify_check__found_is_cut__report_can_be_written),
        cmocka_unit_test(verify_quote__odd_names__read_back_by_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
