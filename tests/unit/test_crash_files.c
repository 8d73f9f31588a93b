/* The file system that forgets (crash_files.h), and the helpers of base/file.h that replace a file
 * or make directories on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "crash_files.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        const oct_status ok_status_ = (call);                                                      \
        if (ok_status_ != OCT_OK)                                                                  \
            fail_msg("%s", err.msg);                                                               \
    } while (0)

static int fresh(void **state)
{
    static crash_files fs;
    crash_files_init(&fs);
    *state = &fs;
    return 0;
}

static int release(void **state)
{
    crash_files_release(*state);
    return 0;
}

/* A file of `bytes` times `letter`, written and closed. */
static void put(crash_files *fs, const char *path, char letter, size_t bytes, bool sync)
{
    oct_err err = {0};
    oct_file file;
    char *data = malloc(bytes);
    memset(data, letter, bytes);
    OK(oct_file_create(&fs->table, path, &file, &err));
    OK(oct_file_write(&file, data, bytes, 0, &err));
    if (sync)
        OK(oct_file_sync(&file, &err));
    OK(oct_file_close(&file, &err));
    free(data);
}

/* Bytes of the file; -1: there is none. */
static int64_t size_of(crash_files *fs, const char *path)
{
    oct_err err = {0};
    oct_file_info info;
    OK(oct_file_stat(&fs->table, path, &info, &err));
    return info.kind == OCT_FILE_NONE ? -1 : (int64_t)info.bytes;
}

/* --- the model ----------------------------------------------------------------------------- */

static void power_loss__name_not_synced__file_gone(void **state)
{
    crash_files *fs = *state;
    put(fs, "/a", 'a', 100, true);
    crash_files_reboot(fs, CRASH_LOSE_NOTHING, 0);
    assert_int_equal(size_of(fs, "/a"), 100);
    crash_files_reboot(fs, CRASH_LOSE_ALL, 0);
    assert_int_equal(size_of(fs, "/a"), -1);
}

static void power_loss__data_not_synced__file_empty(void **state)
{
    crash_files *fs = *state;
    oct_err err = {0};
    put(fs, "/a", 'a', 100, false);
    put(fs, "/b", 'b', 100, true);
    OK(oct_file_sync_dir(&fs->table, "/", &err));
    crash_files_reboot(fs, CRASH_LOSE_ALL, 0);
    assert_int_equal(size_of(fs, "/a"), 0);
    assert_int_equal(size_of(fs, "/b"), 100);
}

static void power_loss__rename_or_removal_not_synced__undone(void **state)
{
    crash_files *fs = *state;
    oct_err err = {0};
    OK(oct_file_mkdir(&fs->table, "/d", &err));
    put(fs, "/d/a", 'a', 10, true);
    put(fs, "/d/b", 'b', 20, true);
    OK(oct_file_sync_dir(&fs->table, "/d", &err));
    crash_files_reboot(fs, CRASH_LOSE_NOTHING, 0);
    OK(oct_file_rename(&fs->table, "/d/a", "/d/b", &err));
    assert_int_equal(size_of(fs, "/d/b"), 10);
    OK(oct_file_sync_dir(&fs->table, "/", &err)); /* of another directory */
    crash_files_reboot(fs, CRASH_LOSE_ALL, 0);
    assert_int_equal(size_of(fs, "/d/a"), 10);
    assert_int_equal(size_of(fs, "/d/b"), 20);
    OK(oct_file_remove_dir(&fs->table, "/d", &err));
    assert_int_equal(size_of(fs, "/d"), -1);
    crash_files_reboot(fs, CRASH_LOSE_ALL, 0);
    assert_int_equal(size_of(fs, "/d/b"), 20);
}

/* Every outcome that the model allows turns up, and no other. */
static void power_loss__some_survives__any_part_of_data_and_names(void **state)
{
    crash_files *fs = *state;
    oct_err err = {0};
    int seen[4] = {0}, sizes[3] = {0}, zeros = 0;
    put(fs, "/old", 'o', 2000, true);
    OK(oct_file_sync_dir(&fs->table, "/", &err));
    put(fs, "/new", 'n', 2000, false);
    OK(oct_file_rename(&fs->table, "/old", "/older", &err));
    for (uint64_t seed = 0; seed < 200; seed++) {
        crash_files copy;
        crash_files_copy(&copy, fs);
        crash_files_reboot(&copy, CRASH_LOSE_SOME, seed);
        const int64_t bytes = size_of(&copy, "/new");
        const bool has_old = size_of(&copy, "/old") == 2000;
        assert_int_equal(size_of(&copy, "/older"), has_old ? -1 : 2000);
        seen[(has_old ? 2 : 0) + (bytes >= 0)]++;
        if (bytes >= 0) {
            sizes[bytes == 0 ? 0 : bytes < 2000 ? 1 : 2]++;
            char *data = NULL;
            size_t n = 0;
            OK(oct_file_read_all(&copy.table, "/new", 4000, &data, &n, &err));
            for (size_t i = 0; i < n; i++)
                assert_true(data[i] == 'n' || data[i] == 0);
            zeros += n > 0 && memchr(data, 0, n) != NULL;
            free(data);
        }
        crash_files_release(&copy);
    }
    assert_true(seen[0] > 5 && seen[1] > 5 && seen[2] > 5 && seen[3] > 5);
    assert_true(sizes[0] > 5 && sizes[1] > 5 && sizes[2] > 5 && zeros > 5);
}

static void fsync__fails__data_is_clean_and_not_on_the_disk(void **state)
{
    crash_files *fs = *state;
    oct_err err = {0};
    oct_file file;
    OK(oct_file_create(&fs->table, "/a", &file, &err));
    OK(oct_file_sync_dir(&fs->table, "/", &err));
    OK(oct_file_write(&file, "lost", 4, 0, &err));
    crash_files_arm(fs, CRASH_EIO, 1);
    assert_int_equal(oct_file_sync(&file, &err), OCT_E_IO);
    OK(oct_file_sync(&file, &err)); /* nothing is dirty any more */
    OK(oct_file_close(&file, &err));
    assert_int_equal(size_of(fs, "/a"), 4);
    crash_files_reboot(fs, CRASH_LOSE_ALL, 0);
    char *data = NULL;
    size_t bytes = 0;
    OK(oct_file_read_all(&fs->table, "/a", 10, &data, &bytes, &err));
    assert_int_equal(bytes, 4);
    assert_memory_equal(data, "\0\0\0\0", 4);
    free(data);
}

static void call__process_dead__nothing_happens(void **state)
{
    crash_files *fs = *state;
    oct_err err = {0};
    crash_files_arm(fs, CRASH_KILL, 2);
    OK(oct_file_mkdir(&fs->table, "/a", &err));
    assert_int_equal(oct_file_mkdir(&fs->table, "/b", &err), OCT_E_IO);
    assert_int_equal(oct_file_mkdir(&fs->table, "/c", &err), OCT_E_IO);
    assert_string_equal(fs->fault, "mkdir /b");
    crash_files_reboot(fs, CRASH_LOSE_NOTHING, 0);
    assert_int_equal(size_of(fs, "/a"), 0);
    assert_int_equal(size_of(fs, "/b"), -1);
    assert_int_equal(size_of(fs, "/c"), -1);
}

/* --- helpers of base/file.h ---------------------------------------------------------------- */

enum { OLD_BYTES = 1500, NEW_BYTES = 2500 };

/* 'o', 'n' for the whole old or new contents, 0 for anything else. */
static char contents(crash_files *fs)
{
    oct_err err = {0};
    char *data = NULL;
    size_t bytes = 0;
    if (oct_file_read_all(&fs->table, "/run/config.yaml", 10000, &data, &bytes, &err) != OCT_OK)
        return 0;
    const char letter = data[0];
    bool is_whole = bytes == (letter == 'o' ? OLD_BYTES : NEW_BYTES);
    for (size_t i = 0; i < bytes; i++)
        is_whole = is_whole && data[i] == letter;
    free(data);
    return is_whole ? letter : 0;
}

static oct_status replace(crash_files *fs, char letter, size_t bytes, oct_err *err)
{
    char data[NEW_BYTES];
    memset(data, letter, bytes);
    return oct_file_replace(&fs->table, "/run/config.yaml", data, bytes, err);
}

static void replace__each_call_crashes__old_or_new_contents(void **state)
{
    crash_files *before = *state;
    oct_err err = {0};
    int64_t points = 0;
    OK(oct_file_make_dirs(&before->table, "/run", &err));
    OK(replace(before, 'o', OLD_BYTES, &err));
    crash_files_reboot(before, CRASH_LOSE_ALL, 0);
    assert_int_equal(contents(before), 'o');
    before->transfer_bytes = 1000;
    for (int mode = CRASH_KILL; mode <= CRASH_LATE; mode++) {
        bool reached = true;
        for (int64_t n = 1; reached; n++) {
            crash_files after;
            crash_files_copy(&after, before);
            crash_files_arm(&after, (crash_mode)mode, n);
            const bool replaced = replace(&after, 'n', NEW_BYTES, &err) == OCT_OK;
            reached = after.fault[0];
            points += reached;
            for (uint64_t seed = 0; seed < 20; seed++) {
                crash_files copy;
                crash_files_copy(&copy, &after);
                const crash_loss loss = seed < 2 ? (crash_loss)seed : CRASH_LOSE_SOME;
                crash_files_reboot(&copy, loss, seed);
                const char found = contents(&copy);
                if (found != 'n' && (replaced || found != 'o'))
                    fail_msg("mode %d, call %lld (%s), seed %d: found '%c'", mode, (long long)n,
                             after.fault, (int)seed, found ? found : '?');
                OK(replace(&copy, 'n', NEW_BYTES, &err)); /* over what is left */
                crash_files_reboot(&copy, CRASH_LOSE_ALL, 0);
                assert_int_equal(contents(&copy), 'n');
                crash_files_release(&copy);
            }
            assert_int_equal(after.open_files, 0);
            crash_files_release(&after);
        }
    }
    print_message("replacing a file: %lld fault points\n", (long long)points);
    assert_true(points > 40);
}

/* The second start finds directories that the first one made and did not live to sync. */
static void make_dirs__each_call_crashes__second_start_makes_them_last(void **state)
{
    crash_files *before = *state;
    oct_err err = {0};
    for (int mode = CRASH_KILL; mode <= CRASH_LATE; mode++) {
        bool reached = true;
        for (int64_t n = 1; reached; n++) {
            crash_files fs;
            crash_files_copy(&fs, before);
            crash_files_arm(&fs, (crash_mode)mode, n);
            (void)!oct_file_make_dirs(&fs.table, "/a/b/c", &err);
            reached = fs.fault[0];
            crash_files_reboot(&fs, CRASH_LOSE_NOTHING, 0);
            OK(oct_file_make_dirs(&fs.table, "/a/b/c", &err));
            crash_files_reboot(&fs, CRASH_LOSE_ALL, 0);
            assert_int_equal(size_of(&fs, "/a/b/c"), 0);
            crash_files_release(&fs);
        }
    }
}

/* A parent that only its owner may read does not stop anybody from using what is in it. */
static int refuse_sync(const oct_file_table *self, const char *path)
{
    return strcmp(path, "/a") == 0 ? -EACCES : crash_fsync_dir(self, path);
}

static void make_dirs__parent_cannot_be_synced__only_new_ones_fail(void **state)
{
    crash_files *fs = *state;
    oct_err err = {0};
    OK(oct_file_make_dirs(&fs->table, "/a/b", &err));
    fs->table.fsync_dir = refuse_sync;
    OK(oct_file_make_dirs(&fs->table, "/a/b/c", &err));
    assert_int_equal(oct_file_make_dirs(&fs->table, "/a/d", &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, "'/a'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(power_loss__name_not_synced__file_gone, fresh, release),
        cmocka_unit_test_setup_teardown(power_loss__data_not_synced__file_empty, fresh, release),
        cmocka_unit_test_setup_teardown(power_loss__rename_or_removal_not_synced__undone, fresh,
                                        release),
        cmocka_unit_test_setup_teardown(power_loss__some_survives__any_part_of_data_and_names,
                                        fresh, release),
        cmocka_unit_test_setup_teardown(fsync__fails__data_is_clean_and_not_on_the_disk, fresh,
                                        release),
        cmocka_unit_test_setup_teardown(call__process_dead__nothing_happens, fresh, release),
        cmocka_unit_test_setup_teardown(replace__each_call_crashes__old_or_new_contents, fresh,
                                        release),
        cmocka_unit_test_setup_teardown(make_dirs__each_call_crashes__second_start_makes_them_last,
                                        fresh, release),
        cmocka_unit_test_setup_teardown(make_dirs__parent_cannot_be_synced__only_new_ones_fail,
                                        fresh, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
