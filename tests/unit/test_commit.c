/* COMMIT.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "checkpoint/commit.h"

static const oct_commit_file files[] = {{"__0_0.distcp", 123456789012, 0xffffffffu},
                                        {".metadata", 0, 0}};
static const oct_commit commit = {.step = 42,
                                  .world = 8,
                                  .config_hash = "a\"b",
                                  .model_json = "{\"n\": [1, 2.5, null]}",
                                  .files = files,
                                  .file_count = 2};

static void write__read__same(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_json json;
    oct_arena arena;
    oct_commit back;
    oct_json_init(&json);
    oct_arena_init(&arena, "test");
    assert_int_equal(oct_commit_write(&commit, &json, &err), OCT_OK);
    if (oct_commit_read(json.text, json.bytes, "x", &arena, &back, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(back.step, 42);
    assert_int_equal(back.world, 8);
    assert_string_equal(back.config_hash, "a\"b");
    assert_string_equal(back.model_json, "{\"n\":[1,2.5,null]}");
    assert_int_equal(back.file_count, 2);
    const oct_commit_file *file = oct_commit_find(&back, "__0_0.distcp");
    assert_true(file->bytes == 123456789012 && file->crc == 0xffffffffu);
    assert_null(oct_commit_find(&back, "__1_0.distcp"));
    oct_arena_release(&arena);
    oct_json_release(&json);
}

static void write__model_is_no_json__refused(void **state)
{
    (void)state;
    oct_json json;
    oct_commit wrong = commit;
    oct_json_init(&json);
    wrong.model_json = "{";
    assert_int_equal(oct_commit_write(&wrong, &json, NULL), OCT_E_API);
    oct_json_release(&json);
}

static void read__any_bit_or_length__refused(void **state)
{
    (void)state;
    oct_json json;
    oct_arena arena;
    oct_commit back;
    oct_json_init(&json);
    oct_arena_init(&arena, "test");
    assert_int_equal(oct_commit_write(&commit, &json, NULL), OCT_OK);
    for (size_t bit = 0; bit < json.bytes * 8; bit++) {
        json.text[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(oct_commit_read(json.text, json.bytes, "x", &arena, &back, NULL),
                         OCT_E_CORRUPT);
        json.text[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t n = 0; n < json.bytes; n++)
        assert_int_equal(oct_commit_read(json.text, n, "x", &arena, &back, NULL), OCT_E_CORRUPT);
    oct_arena_release(&arena);
    oct_json_release(&json);
}

/* Texts with a right CRC and wrong contents: a writer's fault, not damage. */
static void read__sealed_but_wrong__refused(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{\"format\": \"torch\", \"schema\": 1, \"step\": 1, \"world\": 1, \"config_hash\": \"\", "
        "\"model\": null, \"files\": {}",
        "{\"format\": \"octet-dcp\", \"schema\": 2, \"step\": 1, \"world\": 1, \"config_hash\": "
        "\"\", "
        "\"model\": null, \"files\": {}",
        "{\"format\": \"octet-dcp\", \"schema\": 1, \"step\": -1, \"world\": 1, \"config_hash\": "
        "\"\", \"model\": null, \"files\": {}",
        "{\"format\": \"octet-dcp\", \"schema\": 1, \"step\": 1, \"config_hash\": \"\", \"model\": "
        "null, \"files\": {}",
        "{\"format\": \"octet-dcp\", \"schema\": 1, \"step\": 1, \"world\": 1, \"config_hash\": "
        "\"\", "
        "\"model\": null, \"files\": {\"../x\": [1, 2]}",
        "{\"format\": \"octet-dcp\", \"schema\": 1, \"step\": 1, \"world\": 1, \"config_hash\": "
        "\"\", "
        "\"model\": null, \"files\": {\"x\": [1, 4294967296]}",
        "{\"format\": \"octet-dcp\", \"schema\": 1, \"step\": 1, \"world\": 1, \"config_hash\": "
        "\"\", "
        "\"model\": null, \"files\": {\"x\": [1, 2], \"x\": [1, 2]}",
        "[1"};
    oct_arena arena;
    oct_arena_init(&arena, "test");
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char text[512];
        oct_commit back;
        const uint32_t crc =
            (uint32_t)crc32(0, (const unsigned char *)bodies[i], (uInt)strlen(bodies[i]));
        const int n = snprintf(text, sizeof text, "%s, \"self_crc32\": \"%08x\"}", bodies[i], crc);
        if (oct_commit_read(text, (size_t)n, "x", &arena, &back, NULL) != OCT_E_CORRUPT)
            fail_msg("accepted: %s", text);
    }
    oct_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write__read__same),
        cmocka_unit_test(write__model_is_no_json__refused),
        cmocka_unit_test(read__any_bit_or_length__refused),
        cmocka_unit_test(read__sealed_but_wrong__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
