#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "config/source_text.h"
#include "config/text_buffer.h"
#include "config/yaml.h"
#include "unit/temp_dir.h"

static oct_arena arena;
static oct_err err;

static int setup(void **state)
{
    (void)state;
    oct_arena_init(&arena, "test");
    err = (oct_err){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    oct_arena_release(&arena);
    return 0;
}

static oct_value *parse(const char *text)
{
    oct_value *tree = NULL;
    const oct_status status =
        oct_yaml_parse(text, strlen(text), "f.yaml", OCT_YAML_FILE, &arena, &tree, &err);
    if (status != OCT_OK)
        print_error("%s\n", err.msg);
    assert_int_equal(status, OCT_OK);
    return tree;
}

/* The value of `key: <scalar>`. */
static const oct_value *scalar(const char *text)
{
    char line[256];
    (void)snprintf(line, sizeof line, "k: %s\n", text);
    return oct_value_find(parse(line), "k");
}

static void refuses(const char *text, size_t bytes, const char *message)
{
    oct_value *tree = NULL;
    err = (oct_err){0};
    assert_int_equal(oct_yaml_parse(text, bytes, "f.yaml", OCT_YAML_FILE, &arena, &tree, &err),
                     OCT_E_CONFIG);
    if (!strstr(err.msg, message))
        print_error("got:  %s\nwant: %s\n", err.msg, message);
    assert_non_null(strstr(err.msg, message));
}

static void yaml_parse__plain_scalars__typed_by_the_core_schema(void **state)
{
    (void)state;
    static const char *const floats[] = {"2e-5", "1E-5", ".5e-4", "1.", "-0.25", "+1e3", "0.1E+2"};
    static const double values[] = {2e-5, 1e-5, .5e-4, 1.0, -0.25, 1e3, 10.0};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_int_equal(scalar(floats[i])->kind, OCT_VALUE_FLOAT);
        assert_true(scalar(floats[i])->real == values[i]);
    }
    static const char *const integers[] = {
        "0", "-7", "+12", "0x1F", "0o17", "010", "9223372036854775807", "-9223372036854775808"};
    static const int64_t numbers[] = {0, -7, 12, 31, 15, 10, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(scalar(integers[i])->kind, OCT_VALUE_INT);
        assert_int_equal(scalar(integers[i])->integer, numbers[i]);
    }
    static const char *const strings[] = {"1_000", "2e",  "e5",   ".",        "1.2.3", "0x",
                                          "0o8",   "yes", "no",   "on",       "off",   "nULL",
                                          "-",     "+",   "1e5x", "\"2e-5\"", "'1'",   "1,5"};
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        if (strcmp(strings[i], "-") != 0)
            assert_int_equal(scalar(strings[i])->kind, OCT_VALUE_STRING);
    assert_int_equal(scalar("")->kind, OCT_VALUE_NULL);
    assert_int_equal(scalar("~")->kind, OCT_VALUE_NULL);
    assert_int_equal(scalar("null")->kind, OCT_VALUE_NULL);
    assert_int_equal(scalar("\"null\"")->kind, OCT_VALUE_STRING);
    assert_true(scalar("TRUE")->boolean);
    assert_int_equal(scalar("False")->kind, OCT_VALUE_BOOL);
    assert_true(isinf(scalar("-.inf")->real) && scalar("-.inf")->real < 0);
    assert_true(isnan(scalar(".NaN")->real));
}

static void yaml_parse__nested__positions_and_order_kept(void **state)
{
    (void)state;
    const oct_value *tree = parse("# head\na:\n  b: 1\n  c: [x, 2]\nd:\n  - e: {f: 3}\n  -\n");
    const oct_value *a = oct_value_find(tree, "a"), *d = oct_value_find(tree, "d");
    char where[OCT_VALUE_WORDS];
    assert_int_equal(a->kind, OCT_VALUE_MAP);
    assert_int_equal(a->key_line, 2);
    assert_string_equal(oct_value_where(oct_value_find(a, "b"), where), "f.yaml:3");
    assert_int_equal(oct_value_find(a, "c")->count, 2);
    assert_int_equal(oct_value_find(a, "c")->last->integer, 2);
    assert_int_equal(oct_value_find(a, "c")->last->column, 10);
    assert_int_equal(d->count, 2);
    assert_int_equal(oct_value_find(oct_value_find(d->first, "e"), "f")->integer, 3);
    assert_int_equal(d->last->kind, OCT_VALUE_NULL);
    assert_int_equal(d->last->line, 6); /* empty: where the last thing before it stands */
}

static void yaml_parse__bom_crlf_no_last_newline__read(void **state)
{
    (void)state;
    const oct_value *tree = parse("\xEF\xBB\xBF"
                                  "a: 1\r\nb: 'x y'\r\n---- : |\r\n  text\r\nc: 2");
    assert_int_equal(oct_value_find(tree, "a")->integer, 1);
    assert_string_equal(oct_value_find(tree, "b")->text, "x y");
    assert_int_equal(oct_value_find(tree, "c")->integer, 2);
}

#define REFUSES(text, message) refuses((text), sizeof(text) - 1, (message))

static void yaml_parse__what_the_dialect_excludes__refused_with_position(void **state)
{
    (void)state;
    REFUSES("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n",
            "duplicate key: 'c' on line 3 and again on line 5, one is required (f.yaml:5:3)");
    REFUSES("a: 1\nb: 2\n'a': 3\n", "'a' on line 1 and again on line 3");
    REFUSES("a: {x: 1, x: 2}\n", "duplicate key: 'x' on line 1 and again on line 1");
    REFUSES("b: {c: 1}\na:\nb: 3\n", "'b' on line 1 and again on line 3");
    REFUSES("a: &x 1\n", "an anchor (&name), a value without one is required (f.yaml:1:");
    REFUSES("a: 1\nb: *a\n", "an alias (*name)");
    REFUSES("a: 1\nb: *a\n", "(f.yaml:2:5)");
    REFUSES("a: !!str 1\n", "a tag (!name), a value without one is required (f.yaml:1:4)");
    REFUSES("a: &x [1]\n", "an anchor");
    REFUSES("a: !t {b: 1}\n", "a tag");
    REFUSES("a: 1\n---\nb: 2\n", "a second document, one document is required (f.yaml:2:1)");
    REFUSES("a: 1\n...\n---\nb: 2\n", "a second document");
    REFUSES("[a]: 1\n", "a list or map as a key, a scalar is required (f.yaml:1:1)");
    REFUSES("? {a: 1}\n: 1\n", "a list or map as a key");
    REFUSES("", "nothing at the top, a map of keys is required (f.yaml:1)");
    REFUSES("# only a comment\n", "nothing at the top");
    REFUSES("---\n", "null at the top");
    REFUSES("just text\n", "string \"just text\" at the top");
    REFUSES("- 1\n", "list at the top");
    REFUSES("a: 99999999999999999999\n",
            "integer out of range: 99999999999999999999, at most 64 bits with sign (f.yaml:1)");
    REFUSES("a: \"x\\0y\"\n", "an escaped NUL in a string");
}

static void yaml_parse__bad_bytes__refused_with_position(void **state)
{
    (void)state;
    REFUSES("a: 1\nb: x\0y\n",
            "byte 0x00 is a control character, printable UTF-8 is required (f.yaml:2:5)");
    REFUSES("a: \x01\n", "byte 0x01 is a control character");
    REFUSES("a: \xff\n", "byte 0xff is not valid UTF-8, printable UTF-8 is required (f.yaml:1:4)");
    REFUSES("\xc3\xa9: \xc0\xaf\n",
            "byte 0xc0 is not valid UTF-8, printable UTF-8 is required (f.yaml:1:4)");
    REFUSES("a: \xed\xa0\x80\n", "byte 0xed is not valid UTF-8"); /* a surrogate */
    REFUSES("a: \xf4\x90\x80\x80\n", "byte 0xf4 is not valid UTF-8");
    REFUSES("a: \xe2\x82", "byte 0xe2 is not valid UTF-8"); /* cut short */
}

static void yaml_parse__syntax_errors__refused_with_position(void **state)
{
    (void)state;
    REFUSES("a: 1\nb: [1, 2\nc: 3\n", "f.yaml:");
    REFUSES("a: 1\n  b: 2\n", "f.yaml:1:");
    REFUSES("a: \"open\n", "f.yaml:1:");
    REFUSES("a: b: c\n", "f.yaml:1:");
    REFUSES("\ta: 1\n", "f.yaml:1:");
    REFUSES("a: @x\n", "f.yaml:1:");
}

static void yaml_parse__limits__refused(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    char *text = malloc(OCT_SOURCE_MAX_BYTES + 2);
    memset(text, '[', DEEP);
    memcpy(text, "a: ", 3);
    refuses(text, DEEP, "more than 64 nested lists and maps, 64 are allowed (f.yaml:1:67)");
    memset(text, '#', OCT_SOURCE_MAX_BYTES + 1);
    refuses(text, OCT_SOURCE_MAX_BYTES + 1, "1048577 bytes, at most 1048576 are allowed (f.yaml)");
    size_t used = 0;
    for (int i = 0; i <= OCT_SOURCE_MAX_MEMBERS; i++)
        used += (size_t)sprintf(text + used, "k%d: 1\n", i);
    refuses(text, used, "more than 1024 keys in one map (f.yaml:1025:");
    /* 64 containers are legal: the map and 63 lists. */
    used = (size_t)sprintf(text, "a: ");
    memset(text + used, '[', 63);
    memset(text + used + 63, ']', 63);
    text[used + 126] = '\0';
    assert_non_null(parse(text));
    free(text);
}

static void yaml_parse__word__scalar_without_lines(void **state)
{
    (void)state;
    oct_value *value = NULL;
    char where[OCT_VALUE_WORDS];
    assert_int_equal(
        oct_yaml_parse("2e-5", 4, "optimizer.lr=2e-5", OCT_YAML_WORD, &arena, &value, &err),
        OCT_OK);
    assert_int_equal(value->kind, OCT_VALUE_FLOAT);
    assert_string_equal(oct_value_where(value, where), "optimizer.lr=2e-5");
    assert_int_equal(oct_yaml_parse("", 0, "w=", OCT_YAML_WORD, &arena, &value, &err), OCT_OK);
    assert_int_equal(value->kind, OCT_VALUE_NULL);
}

static void yaml_read_file__cannot_be_read__error_names_file(void **state)
{
    (void)state;
    const temp_dir dir = temp_dir_create();
    oct_value *tree = NULL;
    const char *missing = temp_dir_name(&dir, "missing.yaml");
    assert_int_equal(oct_yaml_read_file(missing, &arena, &tree, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, "No such file or directory"));
    assert_non_null(strstr(err.msg, "missing.yaml"));
    assert_int_equal(oct_yaml_read_file(dir.path, &arena, &tree, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, "a folder, a file is required"));
    const char *big = temp_dir_write(&dir, "big.yaml", "a: 1\n");
    assert_int_equal(truncate(big, (off_t)1 << 32), 0);
    assert_int_equal(oct_yaml_read_file(big, &arena, &tree, &err), OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, "at most 1048576 are allowed"));
    temp_dir_remove(&dir);
}

static void value_merge__maps_merge_and_others_replace(void **state)
{
    (void)state;
    oct_value *under = parse("a: {x: 1, y: [1, 2]}\nb: 2\n");
    const oct_value *over = parse("a: {y: [3], z: {w: null}}\nc: \"q\\\"\\n\"\nb: 0.1\n");
    const char *json = NULL;
    assert_int_equal(oct_value_merge(under, over, &arena, &err), OCT_OK);
    assert_int_equal(oct_value_to_json(under, &arena, &json, &err), OCT_OK);
    assert_string_equal(json, "{\"a\": {\"x\": 1, \"y\": [3], \"z\": {\"w\": null}}, \"b\": 0.1, "
                              "\"c\": \"q\\\"\\u000a\"}");
}

static void value_to_json__not_finite__refused(void **state)
{
    (void)state;
    const char *json = NULL;
    assert_int_equal(oct_value_to_json(parse("\na: .nan\n"), &arena, &json, &err), OCT_E_CONFIG);
    assert_string_equal(err.msg, "wrong value of a: .nan, a finite number is required (f.yaml:2)");
}

static void text_append_float__any_double__reads_back(void **state)
{
    (void)state;
    const oct_rng stream = oct_rng_stream(1, "floats");
    oct_text_buffer text = {.arena = &arena};
    for (uint64_t i = 0; i < 2000; i++) {
        const uint64_t bits = oct_rng_u64(stream, i);
        double number = 0;
        memcpy(&number, &bits, sizeof number);
        if (!isfinite(number))
            continue;
        text.length = 0;
        assert_int_equal(oct_text_append_float(&text, number, &err), OCT_OK);
        assert_true(strtod(text.data, NULL) == number);
        assert_int_equal(scalar(text.data)->kind, OCT_VALUE_FLOAT);
    }
    text.length = 0;
    assert_int_equal(oct_text_append_float(&text, 3, &err), OCT_OK);
    assert_string_equal(text.data, "3.0");
}

/* Every mutation parses or is refused with a message; the sanitizer builds watch the rest. */
static void yaml_parse__mutated_text__no_crash(void **state)
{
    (void)state;
    static const char seed[] =
        "base: b.yaml\nmodel:\n  _target_: a.b\n  over: {v: 1, w: [2, null]}\n"
        "list:\n  - \"q*\"\n  - 'p'\n  - {k: &a 1, l: *a}\n"
        "s: |\n  text\nf: >-\n  more\nn: 2e-5 # c\n? k\n: v\n";
    static const char alphabet[] = ":-#&*!|>'\"%@`[]{},?\n \t\\0a~.<=\x80\xc3\xff";
    const oct_rng stream = oct_rng_stream(7, "yaml");
    uint64_t draw = 0;
    for (int round = 0; round < 20000; round++) {
        char text[sizeof seed + 8];
        size_t length = sizeof seed - 1;
        memcpy(text, seed, length);
        const uint64_t edits = 1 + oct_rng_below(stream, draw++, 6);
        for (uint64_t i = 0; i < edits && length > 0; i++) {
            const size_t at = oct_rng_below(stream, draw++, length);
            switch (oct_rng_below(stream, draw++, 4)) {
            case 0:
                text[at] = alphabet[oct_rng_below(stream, draw++, sizeof alphabet)];
                break;
            case 1:
                memmove(text + at, text + at + 1, length - at - 1);
                length--;
                break;
            case 2:
                if (length < sizeof text) {
                    memmove(text + at + 1, text + at, length - at);
                    text[at] = alphabet[oct_rng_below(stream, draw++, sizeof alphabet)];
                    length++;
                }
                break;
            default:
                length = at + 1;
                break;
            }
        }
        oct_value *tree = NULL;
        err = (oct_err){0};
        const oct_status status =
            oct_yaml_parse(text, length, "f.yaml", OCT_YAML_FILE, &arena, &tree, &err);
        if (status == OCT_OK) {
            assert_int_equal(tree->kind, OCT_VALUE_MAP);
        } else {
            assert_int_equal(status, OCT_E_CONFIG);
            assert_non_null(strstr(err.msg, "f.yaml"));
        }
        oct_arena_reset(&arena);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(yaml_parse__plain_scalars__typed_by_the_core_schema),
        TEST(yaml_parse__nested__positions_and_order_kept),
        TEST(yaml_parse__bom_crlf_no_last_newline__read),
        TEST(yaml_parse__what_the_dialect_excludes__refused_with_position),
        TEST(yaml_parse__bad_bytes__refused_with_position),
        TEST(yaml_parse__syntax_errors__refused_with_position),
        TEST(yaml_parse__limits__refused),
        TEST(yaml_parse__word__scalar_without_lines),
        TEST(yaml_read_file__cannot_be_read__error_names_file),
        TEST(value_merge__maps_merge_and_others_replace),
        TEST(value_to_json__not_finite__refused),
        TEST(text_append_float__any_double__reads_back),
        TEST(yaml_parse__mutated_text__no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
