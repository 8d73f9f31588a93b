/* Text files as data: what a path stands for, and documents as tokens. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/file_list.h"
#include "unit/temp_dir.h"

static temp_dir dir;
static oct_arena arena;
static oct_err err;

static int setup(void **state)
{
    (void)state;
    dir = temp_dir_create();
    oct_arena_init(&arena, "test");
    err = (oct_err){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    oct_arena_release(&arena);
    temp_dir_remove(&dir);
    return 0;
}

/* The names that `path` stands for, without the folder of the test, separated by blanks. */
static void expect_files(const char *path, const char *names)
{
    oct_file_list list = {.arena = &arena};
    char found[1024] = "";
    const oct_status status = oct_file_list_add(&list, path, &err);
    if (status != OCT_OK)
        print_error("%s\n", err.msg);
    assert_int_equal(status, OCT_OK);
    for (int64_t i = 0; i < list.count; i++) {
        assert_int_equal(strncmp(list.paths[i], dir.path, strlen(dir.path)), 0);
        (void)strcat(found, i ? " " : "");
        (void)strcat(found, list.paths[i] + strlen(dir.path) + 1);
    }
    oct_file_list_release(&list);
    assert_string_equal(found, names);
}

static void refuses(const char *path, const char *message)
{
    oct_file_list list = {.arena = &arena};
    err = (oct_err){0};
    assert_int_equal(oct_file_list_add(&list, path, &err), OCT_E_DATA);
    if (!strstr(err.msg, message))
        print_error("got:  %s\nwant: %s\n", err.msg, message);
    assert_non_null(strstr(err.msg, message));
    oct_file_list_release(&list);
}

static void make_tree(void)
{
    (void)temp_dir_make(&dir, "d");
    (void)temp_dir_make(&dir, "d/sub");
    (void)temp_dir_make(&dir, "d/sub/deep");
    (void)temp_dir_make(&dir, "d/empty");
    (void)temp_dir_make(&dir, "d/.hidden");
    (void)temp_dir_write(&dir, "d/b.txt", "b");
    (void)temp_dir_write(&dir, "d/a.txt", "a");
    (void)temp_dir_write(&dir, "d/Z.txt", "z");
    (void)temp_dir_write(&dir, "d/sub/c.txt", "c");
    (void)temp_dir_write(&dir, "d/sub/deep/d.h", "d");
    (void)temp_dir_write(&dir, "d/.secret", "s");
    (void)temp_dir_write(&dir, "d/.hidden/x", "x");
    assert_int_equal(mkfifo(temp_dir_name(&dir, "d/pipe"), 0600), 0);
    assert_int_equal(symlink("..", temp_dir_name(&dir, "d/sub/up")), 0);
    assert_int_equal(symlink("a.txt", temp_dir_name(&dir, "d/link.txt")), 0);
}

static void file_list_add__folder__regular_files_sorted_by_bytes(void **state)
{
    (void)state;
    make_tree();
    expect_files(temp_dir_name(&dir, "d"),
                 "d/Z.txt d/a.txt d/b.txt d/link.txt d/sub/c.txt d/sub/deep/d.h");
    expect_files(temp_dir_name(&dir, "d/"),
                 "d/Z.txt d/a.txt d/b.txt d/link.txt d/sub/c.txt d/sub/deep/d.h");
    expect_files(temp_dir_name(&dir, "d/sub/up/sub"), "d/sub/up/sub/c.txt d/sub/up/sub/deep/d.h");
}

static void file_list_add__pattern__all_matches_sorted(void **state)
{
    (void)state;
    make_tree();
    expect_files(temp_dir_name(&dir, "d/*.txt"), "d/Z.txt d/a.txt d/b.txt d/link.txt");
    expect_files(temp_dir_name(&dir, "d/[ab].txt"), "d/a.txt d/b.txt");
    expect_files(temp_dir_name(&dir, "d/s*"), "d/sub/c.txt d/sub/deep/d.h");
    (void)temp_dir_write(&dir, "what?.txt", "q");
    expect_files(temp_dir_name(&dir, "what?.txt"), "what?.txt");
}

static void file_list_add__nothing_to_read__refused(void **state)
{
    (void)state;
    make_tree();
    refuses(temp_dir_name(&dir, "none.txt"), "cannot open data: No such file or directory (");
    assert_non_null(strstr(err.msg, "none.txt)"));
    refuses(temp_dir_name(&dir, "d/*.zip"),
            "cannot find data: nothing matches the pattern, at least one file is required (");
    refuses(temp_dir_name(&dir, "d/empty"),
            "cannot use data folder: no files in it, at least one is required (");
    refuses(temp_dir_name(&dir, "d/pipe"),
            "a special file, a regular file or folder is required (");
    assert_int_equal(symlink("gone", temp_dir_name(&dir, "d/broken")), 0);
    refuses(temp_dir_name(&dir, "d"), "cannot open data: No such file or directory (");
    assert_non_null(strstr(err.msg, "d/broken)"));
}

static void file_list_add__not_allowed__refused(void **state)
{
    (void)state;
    if (geteuid() == 0) { /* root reads everything */
        refuses("/proc/self/mem/x", "cannot open data: Not a directory (");
        return;
    }
    make_tree();
    assert_int_equal(chmod(temp_dir_name(&dir, "d/sub"), 0), 0);
    refuses(temp_dir_name(&dir, "d"), "Permission denied");
    assert_int_equal(chmod(temp_dir_name(&dir, "d/sub"), 0700), 0);
}

static oct_status open_text(const char *path, int64_t seq_length, int64_t vocab_size,
                            oct_dataset **out)
{
    const oct_dataset_spec spec = {.paths = &path,
                                   .path_count = 1,
                                   .tokenizer = "bytes",
                                   .seq_length = seq_length,
                                   .vocab_size = vocab_size};
    return oct_dataset_open(&spec, out, &err);
}

static void text__documents__bytes_then_end_of_document(void **state)
{
    (void)state;
    (void)temp_dir_make(&dir, "t");
    (void)temp_dir_write_bytes(&dir, "t/1", "a\0\xff", 3);
    (void)temp_dir_write(&dir, "t/2", ""); /* an empty document */
    (void)temp_dir_write(&dir, "t/3", "xyz");
    static const int32_t stream[] = {'a', 0, 255, 256, 256, 'x', 'y', 'z', 256};
    oct_dataset *dataset = NULL;
    assert_int_equal(open_text(temp_dir_name(&dir, "t"), 2, 257, &dataset), OCT_OK);
    assert_int_equal(oct_dataset_files(dataset), 3);
    assert_int_equal(oct_dataset_tokens(dataset), 9);
    assert_int_equal(oct_dataset_samples(dataset), 4);
    for (int64_t s = 0; s < 4; s++) {
        int32_t ids[2], targets[2];
        assert_int_equal(oct_dataset_fill(dataset, s, ids, targets, &err), OCT_OK);
        assert_memory_equal(ids, stream + 2 * s, sizeof ids);
        assert_memory_equal(targets, stream + 2 * s + 1, sizeof targets);
    }
    oct_dataset_close(dataset);
}

static void text__vocabulary_below_257__refused(void **state)
{
    (void)state;
    const char *path = temp_dir_write(&dir, "a.txt", "hello");
    oct_dataset *dataset = NULL;
    assert_int_equal(open_text(path, 2, 256, &dataset), OCT_E_DATA);
    assert_non_null(strstr(
        err.msg, "its ids go up to 256, the vocabulary has 256, at least 257 are required ("));
}

/* A document longer than one chunk of the reader, at every phase of the chunk. */
static void text__long_document__exact(void **state)
{
    (void)state;
    enum { BYTES = 10000, SEQ = 4099 };
    unsigned char *text = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        text[i] = (unsigned char)(i * 7 + i / 256);
    const char *path = temp_dir_write_bytes(&dir, "long.txt", text, BYTES);
    int32_t *ids = malloc(SEQ * sizeof *ids), *targets = malloc(SEQ * sizeof *targets);
    oct_dataset *dataset = NULL;
    assert_int_equal(open_text(path, SEQ, 512, &dataset), OCT_OK);
    assert_int_equal(oct_dataset_samples(dataset), 2);
    for (int s = 0; s < 2; s++) {
        assert_int_equal(oct_dataset_fill(dataset, s, ids, targets, &err), OCT_OK);
        for (int i = 0; i < SEQ; i++) {
            assert_int_equal(ids[i], text[s * SEQ + i]);
            assert_int_equal(targets[i], text[s * SEQ + i + 1]);
        }
    }
    oct_dataset_close(dataset);
    free(text);
    free(ids);
    free(targets);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(file_list_add__folder__regular_files_sorted_by_bytes),
        TEST(file_list_add__pattern__all_matches_sorted),
        TEST(file_list_add__nothing_to_read__refused),
        TEST(file_list_add__not_allowed__refused),
        TEST(text__documents__bytes_then_end_of_document),
        TEST(text__vocabulary_below_257__refused),
        TEST(text__long_document__exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
