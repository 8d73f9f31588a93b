/* The TOML reader against tables of documents: what each valid one means, why each other is
 * refused. */
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
#include "config/toml.h"
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
    if (oct_toml_parse(text, strlen(text), "f.toml", &arena, &tree, &err) != OCT_OK)
        fail_msg("%s\nin: %s", err.msg, text);
    return tree;
}

static void refuses(const char *text, size_t bytes, const char *message)
{
    oct_value *tree = NULL;
    err = (oct_err){0};
    if (oct_toml_parse(text, bytes, "f.toml", &arena, &tree, &err) != OCT_E_CONFIG)
        fail_msg("accepted: %s", text);
    if (!strstr(err.msg, message))
        fail_msg("got:  %s\nwant: %s\nin: %s", err.msg, message, text);
}

/* A document and what it means, as JSON. */
typedef struct valid {
    const char *text, *json;
} valid;

static void means(const valid *documents, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *json = NULL;
        if (oct_value_to_json(parse(documents[i].text), &arena, &json, &err) != OCT_OK)
            fail_msg("%s", err.msg);
        if (strcmp(json, documents[i].json) != 0)
            fail_msg("got:  %s\nwant: %s\nin: %s", json, documents[i].json, documents[i].text);
    }
}

#define MEANS(table)           means((table), sizeof(table) / sizeof((table)[0]))
#define REFUSES(text, message) refuses((text), sizeof(text) - 1, (message))

static void toml_parse__keys__named_as_written(void **state)
{
    (void)state;
    static const valid documents[] = {
        {"", "{}"},
        {"# only a comment", "{}"},
        {"\n\t \r\n", "{}"},
        {"\xEF\xBB\xBF"
         "a = 1",
         "{\"a\": 1}"},
        {"a=1", "{\"a\": 1}"},
        {"  a  =\t1 # x\r\n\r\nb = 2", "{\"a\": 1, \"b\": 2}"},
        {"bare_key = 1\nbare-key = 2\n1234 = 3\n",
         "{\"bare_key\": 1, \"bare-key\": 2, \"1234\": 3}"},
        {"\"127.0.0.1\" = 1\n\"\xc3\xa9\" = 2\n'q\"q' = 3",
         "{\"127.0.0.1\": 1, \"\xc3\xa9\": 2, \"q\\\"q\": 3}"},
        {"\"\" = 1", "{\"\": 1}"},
        {"'' = 1", "{\"\": 1}"},
        {"\"a\\u0041\" = 1", "{\"aA\": 1}"},
        {"a.b = 1\na.c.d = 2", "{\"a\": {\"b\": 1, \"c\": {\"d\": 2}}}"},
        {"a . \"b.c\" .  'd' = 1", "{\"a\": {\"b.c\": {\"d\": 1}}}"},
        {"3.14 = 1", "{\"3\": {\"14\": 1}}"},
        {"a.x = 1\nb.x = 2\na.y = 3", "{\"a\": {\"x\": 1, \"y\": 3}, \"b\": {\"x\": 2}}"},
        {"true = 1\ninf = 2\n1e5 = 3\n-1 = 4", "{\"true\": 1, \"inf\": 2, \"1e5\": 3, \"-1\": 4}"},
        {"[ a . 'b' ] # c\nx = 1", "{\"a\": {\"b\": {\"x\": 1}}}"},
    };
    MEANS(documents);
    REFUSES("= 1", "no key, a key of A-Z a-z 0-9 _ - or a quoted key is required (f.toml:1:1)");
    REFUSES("a", "a key without a value, = is required (f.toml:1:2)");
    REFUSES("a b = 1", "a key without a value, = is required (f.toml:1:3)");
    REFUSES("a = 1\n\xc3\xa9 = 1", "no key");
    REFUSES("a. = 1", "no key");
    REFUSES(".a = 1", "no key");
    REFUSES("a..b = 1", "no key");
    REFUSES("a.", "the end of the text");
    REFUSES("\"\"\"a\"\"\" = 1", "a multi-line string as a key");
    REFUSES("'''a''' = 1", "a multi-line string as a key");
    REFUSES("\"a\nb\" = 1", "a string that does not end on its line");
    REFUSES("a = 1 b = 2",
            "something after the end of a value or header, a new line is required (f.toml:1:7)");
    REFUSES("a : 1", "a key without a value");
    REFUSES("a", "a key without a value");
    REFUSES("a =", "the end of the text, a value is required");
    REFUSES("a = \nb = 1", "no value, a value is required: a string needs quotes (f.toml:1:5)");
    REFUSES("a = # c", "no value");
    REFUSES("a\n= 1", "a key without a value");
}

static void toml_parse__strings__four_forms(void **state)
{
    (void)state;
    static const valid documents[] = {
        {"a = \"\"", "{\"a\": \"\"}"},
        {"a = ''", "{\"a\": \"\"}"},
        {"a = \"\\b\\t\\n\\f\\r\\\"\\\\\"",
         "{\"a\": \"\\u0008\\u0009\\u000a\\u000c\\u000d\\\"\\\\\"}"},
        {"a = \"\\u00e9\\U0001F600\\ud7ff\\uE000\"",
         "{\"a\": \"\xc3\xa9\xf0\x9f\x98\x80\xed\x9f\xbf\xee\x80\x80\"}"},
        {"a = \"\\U0010FFFF\"", "{\"a\": \"\xf4\x8f\xbf\xbf\"}"},
        {"a = 'C:\\n\\\"x'", "{\"a\": \"C:\\\\n\\\\\\\"x\"}"},
        {"a = \"tab\tin\" # c", "{\"a\": \"tab\\u0009in\"}"},
        {"a = \"# no comment\"", "{\"a\": \"# no comment\"}"},
        {"a = \"\"\"\"\"\"", "{\"a\": \"\"}"},
        {"a = \"\"\"\nx\ny\"\"\"", "{\"a\": \"x\\u000ay\"}"},
        {"a = \"\"\"\r\nx\r\ny\"\"\"", "{\"a\": \"x\\u000ay\"}"},
        {"a = \"\"\"\n\nx\"\"\"", "{\"a\": \"\\u000ax\"}"},
        {"a = \"\"\"x \\\n\n  \t y\"\"\"", "{\"a\": \"x y\"}"},
        {"a = \"\"\"x\\  \r\n   \"\"\"", "{\"a\": \"x\"}"},
        {"a = \"\"\"x\\\\\ny\"\"\"", "{\"a\": \"x\\\\\\u000ay\"}"},
        {"a = \"\"\"\"one\" \"\"two\"\" \"\"\\\"three\"\"\"",
         "{\"a\": \"\\\"one\\\" \\\"\\\"two\\\"\\\" \\\"\\\"\\\"three\"}"},
        {"a = \"\"\"q\"\"\"\"", "{\"a\": \"q\\\"\"}"},
        {"a = \"\"\"q\"\"\"\"\"", "{\"a\": \"q\\\"\\\"\"}"},
        {"a = ''''q'''''", "{\"a\": \"'q''\"}"},
        {"a = '''\nx\\\n ''y'''", "{\"a\": \"x\\\\\\u000a ''y\"}"},
        {"a = '''x'''\nb = 1", "{\"a\": \"x\", \"b\": 1}"},
    };
    MEANS(documents);
    REFUSES("a = \"x", "an open string, a closing quote is required (f.toml:1:7)");
    REFUSES("a = 'x\n'", "a string that does not end on its line");
    REFUSES("a = \"\"\"x\ny", "an open string, a closing quote is required (f.toml:2:2)");
    REFUSES("a = '''x''", "an open string");
    REFUSES("a = \"\"\"q\"\"\"\"\"\"", "something after the end of a value");
    REFUSES("a = '''''''''", "something after the end of a value");
    REFUSES("a = \"\\a\"", "an unknown escape in a string");
    REFUSES("a = \"\\x41\"", "an unknown escape in a string");
    REFUSES("a = \"\\e\"", "an unknown escape in a string");
    REFUSES("a = \"\\ \"", "an unknown escape in a string");
    REFUSES("a = \"x\\\n y\"", "an unknown escape in a string");
    REFUSES("a = \"\"\"x\\ y\"\"\"", "an unknown escape in a string");
    REFUSES("a = \"\\u12\"", "a Unicode escape with too few digits, 4 hexadecimal digits");
    REFUSES("a = \"\\U0001F60\"", "8 hexadecimal digits are required");
    REFUSES("a = \"\\ud800\"",
            "an escape that is no Unicode character, at most U+10FFFF and no surrogate");
    REFUSES("a = \"\\uDFFF\"", "no surrogate");
    REFUSES("a = \"\\U00110000\"", "at most U+10FFFF");
    REFUSES("a = \"\\UFFFFFFFF\"", "at most U+10FFFF");
    REFUSES("a = \"\\u0000\"", "an escaped NUL in a string");
    REFUSES("a = \"\\", "an unknown escape");
    REFUSES("a = x",
            "'x', a number, true, false, a date or a quoted string is required (f.toml:1:5)");
}

static void toml_parse__numbers__typed_by_the_standard(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } integers[] = {
        {"0", 0},
        {"+0", 0},
        {"-0", 0},
        {"99", 99},
        {"-17", -17},
        {"1_000", 1000},
        {"5_349_221", 5349221},
        {"0xDEAD_beef", 0xdeadbeef},
        {"0o755", 0755},
        {"0b1101_0", 26},
        {"0x00f", 15},
        {"0b0", 0},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"0x7fffffffffffffff", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "k = %s", integers[i].text);
        const oct_value *value = oct_value_find(parse(line), "k");
        assert_int_equal(value->kind, OCT_VALUE_INT);
        assert_int_equal(value->integer, integers[i].value);
        assert_string_equal(value->text, integers[i].text);
        assert_true(value->real == (double)integers[i].value);
    }
    static const struct {
        const char *text;
        double value;
    } floats[] = {
        {"2e-5", 2e-5},
        {"1E-5", 1e-5},
        {"0.5e-4", 0.5e-4},
        {"+1.0", 1},
        {"-0.01", -0.01},
        {"5e+22", 5e22},
        {"1e06", 1e6},
        {"-2E-2", -2e-2},
        {"6.626e-34", 6.626e-34},
        {"224_617.445_991_228", 224617.445991228},
        {"1_0e1_0", 10e10},
        {"0.0", 0},
        {"-0.0", -0.0},
        {"0e0", 0},
        {"1e-400", 0},
        {"1.7976931348623157e308", 1.7976931348623157e308},
        {"inf", HUGE_VAL},
        {"+inf", HUGE_VAL},
        {"-inf", -HUGE_VAL},
    };
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "k = [%s]", floats[i].text);
        const oct_value *value = oct_value_find(parse(line), "k")->first;
        assert_int_equal(value->kind, OCT_VALUE_FLOAT);
        assert_true(value->real == floats[i].value &&
                    signbit(value->real) == signbit(floats[i].value));
    }
    assert_true(isnan(oct_value_find(parse("k = nan"), "k")->real));
    assert_true(isnan(oct_value_find(parse("k = -nan"), "k")->real));
    static const char *const wrong[] = {
        ".5e-4", "1.",   "1.e5",  "+.5",     "-.5",  "1e",       "1e+",   "e5",   "1_",   "_1",
        "1__0",  "01",   "+01",   "-01",     "0_1",  "00",       "0x",    "0xg",  "0X1",  "0o8",
        "0b2",   "+0x1", "-0b1",  "0x_1",    "0x1_", "1_.5",     "1._5",  "1e_5", "1e5_", "03.14",
        "1.2.3", "--1",  "+-1",   "Inf",     "NaN",  "INF",      "+true", "True", "TRUE", "yes",
        "on",    "null", "1e1.5", "0x1.8p3", "1-2",  "infinity", ".",     "-",    "+",    "truer",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "k = %s", wrong[i]);
        refuses(line, strlen(line), "a date or a quoted string is required (f.toml:1:5)");
    }
    REFUSES("k = 9223372036854775808",
            "integer out of range: 9223372036854775808, at most 64 bits with sign (f.toml:1:5)");
    REFUSES("k = -9223372036854775809", "integer out of range");
    REFUSES("k = 0xffffffffffffffff", "integer out of range");
    REFUSES("k = 1e400", "float out of range: 1e400, at most 64 bits (f.toml:1:5)");
    REFUSES("k = 1,5", "something after the end of a value");
    REFUSES("k = ~", "no value");
}

static void toml_parse__dates__checked(void **state)
{
    (void)state;
    static const char *const right[] = {
        "1979-05-27T07:32:00Z",
        "1979-05-27T00:32:00-07:00",
        "1979-05-27T00:32:00.999999+07:30",
        "1979-05-27 07:32:00Z",
        "1979-05-27t07:32:00z",
        "1979-05-27T07:32:00",
        "1979-05-27 07:32:00.5",
        "1979-05-27",
        "2000-02-29",
        "2024-02-29",
        "0000-01-01",
        "07:32:00",
        "00:32:00.999999",
        "1990-12-31T23:59:60Z",
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        char line[64];
        const char *json = NULL;
        (void)snprintf(line, sizeof line, "k = %s # c", right[i]);
        oct_value *tree = parse(line);
        assert_int_equal(oct_value_find(tree, "k")->kind, OCT_VALUE_DATE);
        assert_string_equal(oct_value_find(tree, "k")->text, right[i]);
        assert_int_equal(oct_value_to_json(tree, &arena, &json, &err), OCT_E_CONFIG);
        assert_non_null(strstr(err.msg, "a value of JSON is required (f.toml:1)"));
    }
    static const char *const wrong[] = {
        "1979-13-01",
        "1979-00-01",
        "1979-01-00",
        "1979-04-31",
        "2023-02-29",
        "1900-02-29",
        "1979-5-27",
        "79-05-27",
        "1979-05-27T",
        "1979-05-27T7:32:00Z",
        "1979-05-27T24:00:00Z",
        "1979-05-27T07:60:00Z",
        "1979-05-27T07:32:61Z",
        "1979-05-27T07:32Z",
        "1979-05-27T07:32:00.Z",
        "1979-05-27T07:32:00+24:00",
        "1979-05-27T07:32:00+07",
        "1979-05-27T07:32:00ZZ",
        "07:32",
        "07:32:00Z",
        "25:00:00",
        "1979-05-27X07:32:00",
        "1979-05-27_07:32:00",
        "12:30:00.",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "k = %s", wrong[i]);
        refuses(line, strlen(line), "a date or a quoted string is required (f.toml:1:5)");
    }
    REFUSES("k = 1979-05-27  07:32:00", "something after the end of a value");
}

static void toml_parse__arrays_and_inline_tables__nest(void **state)
{
    (void)state;
    static const valid documents[] = {
        {"a = []", "{\"a\": []}"},
        {"a = [ 1, 2, ]", "{\"a\": [1, 2]}"},
        {"a = [ # c\n 1, # d\n\r\n 2 # e\n, # f\n]", "{\"a\": [1, 2]}"},
        {"a = [1, \"b\", 2.5, true, [\"c\", []], {d = 1}]",
         "{\"a\": [1, \"b\", 2.5, true, [\"c\", []], {\"d\": 1}]}"},
        {"a = [[1,2],[3]]", "{\"a\": [[1, 2], [3]]}"},
        {"a = [\"]\", '#']", "{\"a\": [\"]\", \"#\"]}"},
        {"a = {}", "{\"a\": {}}"},
        {"a = { b = 1, \"c\" = 'x' }", "{\"a\": {\"b\": 1, \"c\": \"x\"}}"},
        {"a = {b.c = 1, b.d = 2}", "{\"a\": {\"b\": {\"c\": 1, \"d\": 2}}}"},
        {"a = {b = [\n1,\n2\n]}", "{\"a\": {\"b\": [1, 2]}}"},
        {"a = {b = {c = {}}}", "{\"a\": {\"b\": {\"c\": {}}}}"},
        {"a = [{b = 1}, {b = 2}]", "{\"a\": [{\"b\": 1}, {\"b\": 2}]}"},
    };
    MEANS(documents);
    REFUSES("a = [1 2]",
            "an array that goes on without a comma, a comma or ] is required (f.toml:1:8)");
    REFUSES("a = [1,, 2]", "no value");
    REFUSES("a = [,]", "no value");
    REFUSES("a = [1", "an array that goes on without a comma");
    REFUSES("a = [", "the end of the text");
    REFUSES("a = [1]]", "something after the end of a value");
    REFUSES("a = [1}", "a comma or ] is required");
    REFUSES("a = {b = 1,}", "no key");
    REFUSES("a = {,}", "no key");
    REFUSES("a = {b = 1 c = 2}",
            "an inline table that goes on without a comma, a comma or } is required");
    REFUSES("a = {b = 1\n}", "an inline table that goes on after its line");
    REFUSES("a = {\nb = 1}", "no key");
    REFUSES("a = {b = 1, # c\n}", "no key");
    REFUSES("a = {b = 1", "a comma or } is required");
    REFUSES("a = {b = 1, b = 2}", "duplicate key: 'b' on line 1 and again on line 1");
    REFUSES("a = {b = {c = 1}, b.d = 2}", "'b' is extended on line 1");
    REFUSES("a = {b.c = 1, b = 2}", "duplicate key: 'b'");
}

static void toml_parse__tables__by_header_and_by_dots(void **state)
{
    (void)state;
    static const valid documents[] = {
        {"[a]\n[b]\nx = 1", "{\"a\": {}, \"b\": {\"x\": 1}}"},
        {"[a.b.c]\nx = 1\n[a]\ny = 2", "{\"a\": {\"b\": {\"c\": {\"x\": 1}}, \"y\": 2}}"},
        {"[a.b]\n[a.c]\n[a]", "{\"a\": {\"b\": {}, \"c\": {}}}"},
        {"r = 1\n[a]\nb.c = 1\nb.d = 2\n[a.e]\nx = 1",
         "{\"r\": 1, \"a\": {\"b\": {\"c\": 1, \"d\": 2}, \"e\": {\"x\": 1}}}"},
        {"[a]\nb.c = 1\n[a.b.d]\nx = 1", "{\"a\": {\"b\": {\"c\": 1, \"d\": {\"x\": 1}}}}"},
        {"[a.b.c]\n[a]\nb.d = 1", "{\"a\": {\"b\": {\"c\": {}, \"d\": 1}}}"},
        {"[[a]]\nx = 1\n[[a]]\n[[a]]\nx = 3", "{\"a\": [{\"x\": 1}, {}, {\"x\": 3}]}"},
        {"[[a]]\n[a.b]\nx = 1\n[[a.c]]\n[[a.c]]\n[[a]]\n[[a.c]]\nz = 1",
         "{\"a\": [{\"b\": {\"x\": 1}, \"c\": [{}, {}]}, {\"c\": [{\"z\": 1}]}]}"},
        {"[ [a]\n]", NULL},
        {"[[a.b]]\nx = 1\n[a]\ny = 2", "{\"a\": {\"b\": [{\"x\": 1}], \"y\": 2}}"},
        {"[a.'b.c'.d]", "{\"a\": {\"b.c\": {\"d\": {}}}}"},
        {"[quantize.linear.mx]\nrecipe_name = \"hif8\"\n[quantize.grouped_mm.mx]\nfqns = "
         "[\"experts\"]",
         "{\"quantize\": {\"linear\": {\"mx\": {\"recipe_name\": \"hif8\"}}, \"grouped_mm\": "
         "{\"mx\": "
         "{\"fqns\": [\"experts\"]}}}}"},
    };
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++)
        if (documents[i].json)
            means(&documents[i], 1);
        else
            refuses(documents[i].text, strlen(documents[i].text), "no key");
    REFUSES("a = 1\nb = 2\na = 3",
            "duplicate key: 'a' on line 1 and again on line 3, one is required (f.toml:3:1)");
    REFUSES("a = 1\n\"a\" = 2", "'a' on line 1 and again on line 2");
    REFUSES("[t]\nx = {\n", "no key");
    REFUSES("[t]\nlr = 1e-3\nbeta = 2\nlr = 2e-3", "'lr' on line 2 and again on line 4");
    REFUSES("[a]\n[b]\n[a]",
            "duplicate table: 'a' on line 1 and again on line 3, one is required (f.toml:3:2)");
    REFUSES("[a.b]\n[a.b]", "duplicate table: 'b' on line 1 and again on line 2");
    REFUSES("[a.b]\n[a]\n[a]", "duplicate table: 'a' on line 2 and again on line 3");
    REFUSES("a = 1\n[a]", "'a' is extended on line 2, but line 1 made it a plain value");
    REFUSES("a = 1\n[a.b]", "'a' is extended on line 2");
    REFUSES("a = 1\na.b = 2", "'a' is extended on line 2");
    REFUSES("a.b = 1\na = 2", "duplicate key: 'a' on line 1 and again on line 2");
    REFUSES("a.b = 1\na.b.c = 2", "'b' is extended on line 2");
    REFUSES("[a]\nb = 1\n[a.b]", "'b' is extended on line 3");
    REFUSES("[a]\nb.c = 1\n[a.b]",
            "'b' is extended on line 3, but line 2 made it a table of dotted "
            "keys; another name is required (f.toml:3:4)");
    REFUSES("[a]\nb.c.d = 1\n[a.b.c]", "'c' is extended on line 3");
    REFUSES("[a.b.c]\nz = 9\n[a]\nb.c.t = 1",
            "'c' is extended on line 4, but line 1 made it a table "
            "with a header of its own");
    REFUSES("[a.b.c.d]\nz = 9\n[a]\nb.c.d.k.t = 1", "'d' is extended on line 4");
    REFUSES("[a.b.c]\n[a]\nb.d = 1\n[a.b]", "'b' is extended on line 4");
    REFUSES("[a]\nb.c = 1\n[d]\n[a.b.e]\n[a]", "duplicate table: 'a'");
    REFUSES("a = {b = 1}\n[a.c]", "line 1 made it an inline table, which is complete");
    REFUSES("a = {b = 1}\n[a]", "'a' is extended on line 2");
    REFUSES("a = {b = 1}\na.c = 2", "'a' is extended on line 2");
    REFUSES("a = {b.c = 1}\n[a.b]", "'a' is extended on line 2");
    REFUSES("a = [{}]\n[[a]]", "line 1 made it an array, which is complete");
    REFUSES("a = [1]\n[a.b]", "'a' is extended on line 2");
    REFUSES("[[a]]\n[a]", "line 1 made it an array of tables");
    REFUSES("[a]\n[[a]]", "line 1 made it a table with a header of its own");
    REFUSES("[a.b]\n[[a]]", "'a' is extended on line 2");
    REFUSES("[[a]]\n[a.b]\n[a.b]", "duplicate table: 'b' on line 2 and again on line 3");
    REFUSES("[[a.b]]\n[a]\nb = 1", "duplicate key: 'b' on line 1 and again on line 3");
    REFUSES("[a", "a header that does not end, ] is required (f.toml:1:3)");
    REFUSES("[[a]", "a header that does not end, ]] is required");
    REFUSES("[[a] ]", "]] is required");
    REFUSES("[]", "no key");
    REFUSES("[[]]", "no key");
    REFUSES("[a] b = 1", "something after the end of a value or header");
    REFUSES("[a]]", "something after the end of a value or header");
    REFUSES("[a.]", "no key");
    REFUSES("[a\n]", "] is required");
}

static void toml_parse__places__line_and_column(void **state)
{
    (void)state;
    const oct_value *tree =
        parse("# head\n[a]\nb = 1\nc = [\"\xc3\xa9\", 2]\n[[d]]\n\n e.f = true\n");
    const oct_value *a = oct_value_find(tree, "a"), *d = oct_value_find(tree, "d");
    char where[OCT_VALUE_WORDS], found[OCT_VALUE_WORDS];
    assert_string_equal(oct_value_where(a, where), "f.toml:2");
    assert_string_equal(oct_value_where(oct_value_find(a, "b"), where), "f.toml:3");
    assert_int_equal(oct_value_find(a, "c")->key_line, 4);
    assert_int_equal(oct_value_find(a, "c")->last->column, 11);
    assert_int_equal(d->count, 1);
    const oct_value *f = oct_value_find(oct_value_find(d->first, "e"), "f");
    assert_int_equal(f->line, 7);
    assert_int_equal(f->column, 8);
    assert_string_equal(oct_value_describe(f, found), "boolean true");
    assert_string_equal(oct_value_describe(oct_value_find(parse("x = 1979-05-27"), "x"), found),
                        "date 1979-05-27");
}

static void toml_parse__bad_bytes__refused_with_position(void **state)
{
    (void)state;
    REFUSES("a = 1\nb = \"x\0y\"",
            "byte 0x00 is a control character, printable UTF-8 is required (f.toml:2:7)");
    REFUSES("a = \"\x01\"", "byte 0x01 is a control character");
    REFUSES("a = '\x7f'", "byte 0x7f is a control character");
    REFUSES("# \x0c", "byte 0x0c is a control character");
    REFUSES("a = \"\xff\"",
            "byte 0xff is not valid UTF-8, printable UTF-8 is required (f.toml:1:6)");
    REFUSES("# \xed\xa0\x80", "byte 0xed is not valid UTF-8");
    REFUSES("a = '\xc0\xaf'", "byte 0xc0 is not valid UTF-8");
    REFUSES("a = \"\xe2\x82", "byte 0xe2 is not valid UTF-8");
    REFUSES("a = 1\rb = 2", "a carriage return alone, LF or CRLF ends a line (f.toml:1:6)");
    REFUSES("# c\r", "a carriage return alone");
    REFUSES("a = \"\"\"\r\"\"\"", "a carriage return alone");
    REFUSES("a = 1 \xEF\xBB\xBF", "something after the end of a value");
}

static void toml_parse__limits__refused(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    char *text = malloc(OCT_SOURCE_MAX_BYTES + 2);
    memset(text, '[', DEEP);
    memcpy(text, "a = ", 4);
    refuses(text, DEEP, "more than 64 nested tables and arrays, 64 are allowed (f.toml:1:68)");
    memset(text, '#', OCT_SOURCE_MAX_BYTES + 1);
    refuses(text, OCT_SOURCE_MAX_BYTES + 1, "1048577 bytes, at most 1048576 are allowed (f.toml)");
    size_t used = 0;
    for (int i = 0; i <= OCT_SOURCE_MAX_MEMBERS; i++)
        used += (size_t)sprintf(text + used, "k%d = 1\n", i);
    refuses(text, used, "more than 1024 keys in one table (f.toml:1025:1)");
    used = 0;
    for (int i = 0; i < 64; i++)
        used += (size_t)sprintf(text + used, "a.");
    (void)sprintf(text + used, "b = 1");
    refuses(text, strlen(text), "more than 64 nested tables");
    text[0] = '[';
    for (used = 1; used < 2 * 64;)
        used += (size_t)sprintf(text + used, "a.");
    (void)sprintf(text + used, "b]");
    refuses(text, strlen(text), "more than 64 nested tables");
    /* 64 containers are legal: the table and 63 arrays. */
    used = (size_t)sprintf(text, "a = ");
    memset(text + used, '[', 63);
    memset(text + used + 63, ']', 63);
    text[used + 126] = '\0';
    assert_non_null(parse(text));
    /* A long line is counted once, not once for each of its values. */
    used = (size_t)sprintf(text, "a = [");
    while (used < OCT_SOURCE_MAX_BYTES - 8)
        used += (size_t)sprintf(text + used, "1,");
    (void)sprintf(text + used, "]");
    assert_int_equal(oct_value_find(parse(text), "a")->last->column, (int)used - 1);
    free(text);
}

static void toml_read_file__cannot_be_read__error_names_file(void **state)
{
    (void)state;
    const temp_dir dir = temp_dir_create();
    oct_value *tree = NULL;
    assert_int_equal(oct_toml_read_file(temp_dir_name(&dir, "missing.toml"), &arena, &tree, &err),
                     OCT_E_IO);
    assert_non_null(strstr(err.msg, "missing.toml"));
    assert_int_equal(oct_toml_read_file(dir.path, &arena, &tree, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, "a folder, a file is required"));
    const char *file = temp_dir_write(&dir, "a.toml", "a = 1\nb = .5\n");
    assert_int_equal(oct_toml_read_file(file, &arena, &tree, &err), OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, "a.toml:2:5)"));
    temp_dir_remove(&dir);
}

/* Every mutation parses or is refused with a message; the sanitizer builds watch the rest. */
static void toml_parse__mutated_text__no_crash(void **state)
{
    (void)state;
    static const char seed[] =
        "base = 'b'\n[model]\nconverters = [\"npu_gmm\", \"q\",]\n[q.l]\nn = 2e-5 # c\n"
        "d = 1979-05-27 07:32:00Z\n[[t]]\na.b = {c = 1, d.e = [true, -inf]}\n[[t]]\n"
        "s = \"\"\"\\u00e9 \\\n x\"\"\"\"\nl = '''y''z'''\nx = 0xFF_f\nk.\"v\\\"\" = 'w'\r\n";
    static const char alphabet[] = "=.[]{}\"'\\#,\n\r \t0a_-+:uUxTZ\0\x80\xc3\xff";
    const oct_rng stream = oct_rng_stream(7, "toml");
    uint64_t draw = 0;
    int accepted = 0;
    for (int round = 0; round < 40000; round++) {
        char buffer[sizeof seed + 8];
        size_t length = sizeof seed - 1;
        memcpy(buffer, seed, length);
        const uint64_t edits = 1 + oct_rng_below(stream, draw++, 6);
        for (uint64_t i = 0; i < edits && length > 0; i++) {
            const size_t at = oct_rng_below(stream, draw++, length);
            const uint64_t kind = oct_rng_below(stream, draw++, 12);
            if (kind < 4) {
                buffer[at] = alphabet[oct_rng_below(stream, draw++, sizeof alphabet)];
            } else if (kind < 7) {
                memmove(buffer + at, buffer + at + 1, length - at - 1);
                length--;
            } else if (kind < 11 && length < sizeof buffer) {
                memmove(buffer + at + 1, buffer + at, length - at);
                buffer[at] = alphabet[oct_rng_below(stream, draw++, sizeof alphabet)];
                length++;
            } else if (kind == 11) {
                length = at + 1;
            }
        }
        /* A copy of its own size: a read past the end is seen. */
        char *text = malloc(length ? length : 1);
        memcpy(text, buffer, length);
        oct_value *tree = NULL;
        err = (oct_err){0};
        const oct_status status = oct_toml_parse(text, length, "f.toml", &arena, &tree, &err);
        if (status == OCT_OK) {
            assert_int_equal(tree->kind, OCT_VALUE_MAP);
            accepted++;
        } else {
            assert_int_equal(status, OCT_E_CONFIG);
            assert_non_null(strstr(err.msg, "(f.toml:"));
        }
        free(text);
        oct_arena_reset(&arena);
    }
    assert_in_range(accepted, 100, 39000);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(toml_parse__keys__named_as_written),
        TEST(toml_parse__strings__four_forms),
        TEST(toml_parse__numbers__typed_by_the_standard),
        TEST(toml_parse__dates__checked),
        TEST(toml_parse__arrays_and_inline_tables__nest),
        TEST(toml_parse__tables__by_header_and_by_dots),
        TEST(toml_parse__places__line_and_column),
        TEST(toml_parse__bad_bytes__refused_with_position),
        TEST(toml_parse__limits__refused),
        TEST(toml_read_file__cannot_be_read__error_names_file),
        TEST(toml_parse__mutated_text__no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
