/* The file helpers, fault points and the JSON writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "base/json.h"
#include "unit/faulty_files.h"
#include "unit/scratch_dir.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        const oct_status ok_status_ = (call);                                                      \
        if (ok_status_ != OCT_OK)                                                                  \
            fail_msg("%s", err.msg);                                                               \
    } while (0)

static void replace__new_and_old_file__contents_swapped(void **state)
{
    (void)state;
    oct_err err = {0};
    char *text = NULL;
    size_t bytes = 0;
    const char *path = scratch_path("a");
    OK(oct_file_replace(&oct_file_table_real, path, "one", 3, &err));
    OK(oct_file_replace(&oct_file_table_real, path, "three", 5, &err));
    OK(oct_file_read_all(&oct_file_table_real, path, 100, &text, &bytes, &err));
    assert_int_equal(bytes, 5);
    assert_string_equal(text, "three");
    free(text);
}

/* Whatever call fails, the file holds the old or the new text in full, and no handle leaks. */
static void replace__each_call_fails__old_or_new_whole(void **state)
{
    (void)state;
    static const faulty_mode modes[] = {FAULTY_EIO, FAULTY_ENOSPC, FAULTY_EINTR, FAULTY_SHORT,
                                        FAULTY_DEAD};
    const char *path = scratch_path("a");
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        int64_t points = 0;
        for (;;) {
            oct_err err = {0};
            char *text = NULL;
            size_t bytes = 0;
            OK(oct_file_replace(&oct_file_table_real, path, "old", 3, &err));
            faulty_files files = faulty_files_new(modes[m], ++points);
            const oct_status status = oct_file_replace(&files.table, path, "newer", 5, &err);
            OK(oct_file_read_all(&oct_file_table_real, path, 100, &text, &bytes, &err));
            if (status == OCT_OK)
                assert_string_equal(text, "newer");
            else
                assert_true(strcmp(text, "old") == 0 || strcmp(text, "newer") == 0);
            free(text);
            assert_int_equal(files.open_files, 0);
            if (modes[m] == FAULTY_SHORT)
                assert_int_equal(status, OCT_OK);
            if (!files.failed_operation)
                break;
            if (status != OCT_OK)
                assert_non_null(strstr(err.msg, scratch_dir));
        }
        assert_true(points > 6);
    }
}

static void write__eintr_and_short__all_bytes_arrive(void **state)
{
    (void)state;
    oct_err err = {0};
    unsigned char out[1000], back[1000];
    for (int i = 0; i < 1000; i++)
        out[i] = (unsigned char)(i * 7);
    for (int mode = FAULTY_EINTR; mode <= FAULTY_SHORT; mode++) {
        for (int64_t n = 1; n <= 3; n++) {
            faulty_files files = faulty_files_new((faulty_mode)mode, n);
            oct_file file;
            const char *path = scratch_path("b");
            (void)unlink(path);
            OK(oct_file_create(&files.table, path, &file, &err));
            OK(oct_file_write(&file, out, sizeof out, 10, &err));
            OK(oct_file_sync(&file, &err));
            OK(oct_file_close(&file, &err));
            faulty_files reads = faulty_files_new((faulty_mode)mode, n);
            OK(oct_file_open(&reads.table, path, &file, &err));
            memset(back, 0, sizeof back);
            OK(oct_file_read(&file, back, sizeof back, 10, &err));
            assert_memory_equal(out, back, sizeof out);
            assert_int_equal(oct_file_read(&file, back, sizeof back, 11, &err), OCT_E_CORRUPT);
            assert_non_null(strstr(err.msg, "ends at byte 1010"));
            OK(oct_file_close(&file, &err));
        }
    }
}

static void write__disk_full__error_with_path_and_reason(void **state)
{
    (void)state;
    oct_err err = {0};
    faulty_files files = faulty_files_new(FAULTY_ENOSPC, 2);
    oct_file file;
    OK(oct_file_create(&files.table, scratch_path("c"), &file, &err));
    assert_int_equal(oct_file_write(&file, "x", 1, 0, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, "No space left on device"));
    assert_non_null(strstr(err.msg, "/c'"));
    oct_file_discard(&file);
    assert_int_equal(files.open_files, 0);
}

static void create__file_exists__refused(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_file file;
    OK(oct_file_create(&oct_file_table_real, scratch_path("d"), &file, &err));
    oct_file_discard(&file);
    assert_int_equal(oct_file_create(&oct_file_table_real, scratch_path("d"), &file, &err),
                     OCT_E_IO);
    oct_file_discard(&file);
}

static void rename_new__target_exists__refused(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(oct_file_mkdir(&oct_file_table_real, scratch_path("x"), &err));
    OK(oct_file_mkdir(&oct_file_table_real, scratch_path("y"), &err));
    assert_int_equal(
        oct_file_rename_new(&oct_file_table_real, scratch_path("x"), scratch_path("y"), &err),
        OCT_E_IO);
    assert_non_null(strstr(err.msg, "File exists"));
    OK(oct_file_rename_new(&oct_file_table_real, scratch_path("x"), scratch_path("z"), &err));
}

static void make_dirs__nested__made_and_idempotent(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_file_info info;
    for (int i = 0; i < 2; i++)
        OK(oct_file_make_dirs(&oct_file_table_real, scratch_path("p//q/r"), &err));
    OK(oct_file_stat(&oct_file_table_real, scratch_path("p/q/r"), &info, &err));
    assert_int_equal(info.kind, OCT_FILE_DIRECTORY);
    OK(oct_file_stat(&oct_file_table_real, scratch_path("p/none"), &info, &err));
    assert_int_equal(info.kind, OCT_FILE_NONE);
}

static void read_all__longer_than_limit__refused(void **state)
{
    (void)state;
    oct_err err = {0};
    char *text = NULL;
    size_t bytes = 0;
    OK(oct_file_replace(&oct_file_table_real, scratch_path("e"), "12345", 5, &err));
    assert_int_equal(
        oct_file_read_all(&oct_file_table_real, scratch_path("e"), 4, &text, &bytes, &err),
        OCT_E_CORRUPT);
}

static void fault__nth_pass__acts_once(void **state)
{
    (void)state;
    oct_err err = {0};
    assert_false(oct_fault("point"));
    OK(oct_fault_arm("point", 3, OCT_FAULT_FAIL, &err));
    assert_false(oct_fault("point"));
    assert_false(oct_fault("other"));
    assert_false(oct_fault("point"));
    assert_true(oct_fault("point"));
    assert_false(oct_fault("point"));
    assert_int_equal(oct_fault_armed, 0);
}

static void fault__environment__armed_or_refused(void **state)
{
    (void)state;
    oct_err err = {0};
    (void)setenv(OCT_FAULT_ENV, "a:1,b:2", 1);
    OK(oct_fault_arm_from_environment(&err));
    assert_true(oct_fault("a"));
    assert_false(oct_fault("b"));
    assert_true(oct_fault("b"));
    static const char *const wrong[] = {"a",          "a:0",         "a:x",          ":1",
                                        "a:1:stop",   "a:1kill",     "a:1:rank=",    "a:1:rank=-1",
                                        "a:1:rank",   "a:1:rank=1x", "a:1:rank=1:x", "a:1:step",
                                        "a:1:step=0", "a:1:step=x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        (void)setenv(OCT_FAULT_ENV, wrong[i], 1);
        assert_int_equal(oct_fault_arm_from_environment(&err), OCT_E_CONFIG);
    }
    (void)unsetenv(OCT_FAULT_ENV);
    oct_fault_disarm_all();
}

static void fault__of_a_rank__counts_its_passes_only(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(oct_fault_arm_rank("point", 2, 3, OCT_FAULT_FAIL, &err));
    for (int i = 0; i < 3; i++)
        assert_false(oct_fault("point")); /* rank 0 */
    oct_fault_set_rank(3);
    assert_false(oct_fault("point"));
    oct_fault_set_rank(0);
    assert_false(oct_fault("point"));
    (void)setenv(OCT_FAULT_ENV, "b:1:rank=1", 1);
    OK(oct_fault_arm_from_environment(&err));
    (void)unsetenv(OCT_FAULT_ENV);
    oct_fault_set_rank(3);
    assert_false(oct_fault("b"));
    assert_true(oct_fault("point"));
    oct_fault_set_rank(1);
    assert_true(oct_fault("b"));
    assert_int_equal(oct_fault_arm_rank("point", 1, -1, OCT_FAULT_FAIL, &err), OCT_E_API);
    oct_fault_set_rank(0);
    assert_int_equal(oct_fault_armed, 0);
}

static void fault__of_a_step__counts_its_passes_only(void **state)
{
    (void)state;
    oct_err err = {0};
    (void)setenv(OCT_FAULT_ENV, "a:2:step=3", 1);
    OK(oct_fault_arm_from_environment(&err));
    (void)unsetenv(OCT_FAULT_ENV);
    for (int64_t step = 0; step < 3; step++) {
        oct_fault_set_step(step);
        assert_false(oct_fault("a"));
    }
    oct_fault_set_step(3);
    assert_false(oct_fault("a"));
    assert_true(oct_fault("a"));
    oct_fault_set_step(0);
    assert_int_equal(oct_fault_armed, 0);
}

static volatile sig_atomic_t terminated;

static void on_term(int number)
{
    terminated = number;
}

static void fault__term__sends_the_signal_and_reports_nothing(void **state)
{
    (void)state;
    oct_err err = {0};
    const struct sigaction action = {.sa_handler = on_term};
    struct sigaction before;
    assert_int_equal(sigaction(SIGTERM, &action, &before), 0);
    (void)setenv(OCT_FAULT_ENV, "a:1:rank=0:term", 1);
    OK(oct_fault_arm_from_environment(&err));
    (void)unsetenv(OCT_FAULT_ENV);
    assert_false(oct_fault("a"));
    assert_int_equal(terminated, SIGTERM);
    assert_int_equal(sigaction(SIGTERM, &before, NULL), 0);
}

static void fault__kill__process_dies(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        if (oct_fault_arm("cut", 1, OCT_FAULT_KILL, NULL) == OCT_OK)
            (void)oct_fault("cut");
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == 9);
}

static void json__values__text_reads_back(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_json json;
    oct_json_init(&json);
    for (int round = 0; round < 2; round++) {
        oct_json_clear(&json);
        oct_json_object(&json, NULL);
        oct_json_string(&json, "a\"b", "x\\\n\t\x01\xc3\xa9");
        oct_json_string(&json, "n", NULL);
        oct_json_array(&json, "l");
        oct_json_int(&json, NULL, INT64_MIN);
        oct_json_bool(&json, NULL, true);
        oct_json_array(&json, NULL);
        oct_json_end(&json);
        oct_json_end(&json);
        oct_json_double(&json, "d", 0.1);
        oct_json_float(&json, "f", 0.1f);
        oct_json_double(&json, "i", (double)INFINITY);
        oct_json_raw(&json, "r", "{}");
        oct_json_end(&json);
        OK(oct_json_finish(&json, &err));
        assert_string_equal(
            json.text, "{\"a\\\"b\": \"x\\\\\\n\\t\\u0001\xc3\xa9\", \"n\": null, \"l\": "
                       "[-9223372036854775808, true, []], \"d\": 0.1, \"f\": 0.1, \"i\": null, "
                       "\"r\": {}}");
    }
    oct_json_release(&json);
}

static void json__floats__same_bits(void **state)
{
    (void)state;
    uint32_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        bits = bits * 1664525u + 1013904223u;
        float x, y;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x))
            continue;
        oct_json json;
        oct_json_init(&json);
        oct_json_float(&json, NULL, x);
        y = strtof(json.text, NULL);
        assert_memory_equal(&x, &y, sizeof x);
        oct_json_release(&json);
    }
}

static void json__misuse__reported(void **state)
{
    (void)state;
    oct_json json;
    oct_json_init(&json);
    oct_json_object(&json, NULL);
    assert_int_equal(oct_json_finish(&json, NULL), OCT_E_API);
    oct_json_int(&json, NULL, 1);
    oct_json_end(&json);
    assert_int_equal(oct_json_finish(&json, NULL), OCT_E_API);
    oct_json_release(&json);
    oct_json_end(&json);
    assert_int_equal(oct_json_finish(&json, NULL), OCT_E_API);
    oct_json_release(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replace__new_and_old_file__contents_swapped),
        cmocka_unit_test(replace__each_call_fails__old_or_new_whole),
        cmocka_unit_test(write__eintr_and_short__all_bytes_arrive),
        cmocka_unit_test(write__disk_full__error_with_path_and_reason),
        cmocka_unit_test(create__file_exists__refused),
        cmocka_unit_test(rename_new__target_exists__refused),
        cmocka_unit_test(make_dirs__nested__made_and_idempotent),
        cmocka_unit_test(read_all__longer_than_limit__refused),
        cmocka_unit_test(fault__nth_pass__acts_once),
        cmocka_unit_test(fault__environment__armed_or_refused),
        cmocka_unit_test(fault__of_a_rank__counts_its_passes_only),
        cmocka_unit_test(fault__of_a_step__counts_its_passes_only),
        cmocka_unit_test(fault__term__sends_the_signal_and_reports_nothing),
        cmocka_unit_test(fault__kill__process_dies),
        cmocka_unit_test(json__values__text_reads_back),
        cmocka_unit_test(json__floats__same_bits),
        cmocka_unit_test(json__misuse__reported),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
