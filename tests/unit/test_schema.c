#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "config/config_text.h"
#include "config/schema.h"

static oct_arena arena;
static oct_err err;

static int setup(void **state)
{
    (void)state;
    oct_arena_init(&arena, "test");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    oct_arena_release(&arena);
    return 0;
}

/* The committed file holds the generated text; OCTET_UPDATE=1 writes it. */
static void check_file(const char *path, const char *text)
{
    if (getenv("OCTET_UPDATE")) {
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
        assert_int_equal(fclose(out), 0);
    }
    char committed[65536];
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    const size_t bytes = fread(committed, 1, sizeof committed - 1, in);
    assert_int_equal(fclose(in), 0);
    committed[bytes] = '\0';
    assert_string_equal(committed, text);
}

static void reference_yaml__committed_file__same_bytes(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(oct_config_reference_yaml(&arena, &text, &err), OCT_OK);
    check_file(OCTET_SOURCE_DIR "/configs/reference.yaml", text);
}

static void reference_markdown__committed_file__same_bytes(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(oct_config_reference_markdown(&arena, &text, &err), OCT_OK);
    check_file(OCTET_SOURCE_DIR "/docs/config.md", text);
    for (int i = 0; i < oct_schema_config().count; i++) {
        char cell[128];
        (void)snprintf(cell, sizeof cell, "| `%s` |", oct_schema_config().keys[i].path);
        assert_non_null(strstr(text, cell));
    }
}

/* reference.yaml with the required keys is the same as the required keys alone. */
static void reference_yaml__loaded__gives_the_defaults(void **state)
{
    (void)state;
    static const char *const words[] = {"model.config_name_or_path=a", "training.train_iters=2",
                                        "training.seq_length=3", "dataset.path=b"};
    const char *reference = OCTET_SOURCE_DIR "/configs/reference.yaml";
    oct_config plain, full;
    char *plain_text = NULL, *full_text = NULL;
    assert_int_equal(oct_config_load(NULL, 0, words, 4, &arena, NULL, NULL, &plain, &err), OCT_OK);
    assert_int_equal(oct_config_load(&reference, 1, words, 4, &arena, NULL, NULL, &full, &err),
                     OCT_OK);
    assert_int_equal(oct_config_print(&plain, &arena, &plain_text, &err), OCT_OK);
    assert_int_equal(oct_config_print(&full, &arena, &full_text, &err), OCT_OK);
    assert_string_equal(plain_text, full_text);
}

static void schema__rows__complete_and_in_sections(void **state)
{
    (void)state;
    const oct_schema schema = oct_schema_config();
    for (int i = 0; i < schema.count; i++) {
        const oct_key *key = &schema.keys[i];
        assert_non_null(key->help);
        assert_true(key->fallback || key->example);
        assert_ptr_equal(oct_schema_find(schema, key->path), key);
        for (int j = 0; j < i; j++) /* no member is filled twice */
            assert_int_not_equal(schema.keys[j].offset, key->offset);
    }
    assert_true(oct_schema_is_section(schema, "dataset.validation"));
    assert_false(oct_schema_is_section(schema, "dataset.path"));
    assert_false(oct_schema_is_section(schema, "data"));
}

static void schema_nearest__misspelt__right_key(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"training.seq_len", "training.seq_length"},
        {"micro_batch_size", "training.micro_batch_size"},
        {"fsdp.reshard_after_forward", "fsdp_config.reshard_after_forward"},
        {"low_precison.format", "low_precision.format"},
        {"datset.path", "dataset.path"},
        {"training.gradient_accumulation_steps", "gradient_accumulation_steps"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)

        assert_string_equal(oct_schema_nearest(oct_schema_config(), pairs[i][0]), pairs[i][1]);
}

static void edit_distance__known_pairs(void **state)
{
    (void)state;
    assert_int_equal(oct_edit_distance("", ""), 0);
    assert_int_equal(oct_edit_distance("", "abc"), 3);
    assert_int_equal(oct_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(oct_edit_distance("lr", "rl"), 2);
    char long_name[1000];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(oct_edit_distance(long_name, "x"), 254);
    assert_int_equal(oct_edit_distance(long_name, long_name), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(reference_yaml__committed_file__same_bytes),
        TEST(reference_markdown__committed_file__same_bytes),
        TEST(reference_yaml__loaded__gives_the_defaults),
        TEST(schema__rows__complete_and_in_sections),
        TEST(schema_nearest__misspelt__right_key),
        TEST(edit_distance__known_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
