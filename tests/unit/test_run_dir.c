/* Run directories: made, locked, and never mistaken for something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/wait.h>

#include "trainer/run_dir.h"
#include "unit/temp_dir.h"

static temp_dir files;

static int make_files(void **state)
{
    (void)state;
    files = temp_dir_create();
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    temp_dir_remove(&files);
    return 0;
}

static void open__new_nested_directory__is_made(void **state)
{
    (void)state;
    oct_run_dir dir;
    oct_err err = {0};
    char *text = NULL;
    assert_int_equal(oct_run_dir_open(temp_dir_name(&files, "a/b/run"), &dir, &err), OCT_OK);
    assert_false(dir.existed);
    assert_int_equal(access(dir.checkpoints, W_OK), 0);
    assert_int_equal(oct_run_dir_read_config(&dir, &text, &err), OCT_OK);
    assert_null(text);
    assert_int_equal(oct_run_dir_write_config(&dir, "seed: 7\n", &err), OCT_OK);
    oct_run_dir_close(&dir);

    assert_int_equal(oct_run_dir_open(temp_dir_name(&files, "a/b/run"), &dir, &err), OCT_OK);
    assert_true(dir.existed);
    assert_int_equal(oct_run_dir_read_config(&dir, &text, &err), OCT_OK);
    assert_string_equal(text, "seed: 7\n"); /* without the mark */
    free(text);
    oct_run_dir_close(&dir);
}

/* Refused, naming what is in the way, and left alone. */
static void assert_foreign(const char *name, const char *named)
{
    oct_run_dir dir;
    oct_err err = {0};
    char lock[600];
    (void)snprintf(lock, sizeof lock, "%s/%s/lock", files.path, name);
    assert_int_equal(oct_run_dir_open(temp_dir_name(&files, name), &dir, &err), OCT_E_CONFIG);
    assert_int_equal(dir.lock_fd, -1);
    if (!strstr(err.msg, named) || !strstr(err.msg, name))
        fail_msg("the message does not name '%s' in '%s': %s", named, name, err.msg);
    assert_int_not_equal(access(lock, F_OK), 0);
}

static void open__directory_of_something_else__is_refused_untouched(void **state)
{
    (void)state;
    temp_dir_make(&files, "home");
    temp_dir_write(&files, "home/notes.txt", "mine\n");
    assert_foreign("home", "'notes.txt'");
    temp_dir_make(&files, "yaml");
    temp_dir_write(&files, "yaml/config.yaml", "seed: 7\n"); /* no mark */
    assert_foreign("yaml", "'config.yaml'");
    temp_dir_make(&files, "saved");
    temp_dir_make(&files, "saved/checkpoints");
    temp_dir_make(&files, "saved/checkpoints/step-5");
    assert_foreign("saved", "'checkpoints'");
}

/* A start that died before config.yaml leaves a lock file, an empty folder of checkpoints and
 * traces of its build. */
static void open__rest_of_a_start__is_taken_over(void **state)
{
    (void)state;
    oct_run_dir dir;
    oct_err err = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(oct_run_dir_open(temp_dir_name(&files, "rest"), &dir, &err), OCT_OK);
        assert_false(dir.existed);
        oct_run_dir_close(&dir);
        temp_dir_write(&files, "rest/trace-0.jsonl", "{}\n");
        temp_dir_write(&files, "rest/trace-12.jsonl", "");
    }
    temp_dir_make(&files, "traces");
    temp_dir_write(&files, "traces/trace-x.jsonl", "mine\n");
    assert_foreign("traces", "'trace-x.jsonl'");
}

static void open__locked_by_another_process__names_pid_and_host(void **state)
{
    (void)state;
    int ready[2], done[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    const char *path = temp_dir_name(&files, "locked");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        oct_run_dir dir;
        oct_err err = {0};
        byte = oct_run_dir_open(path, &dir, &err) == OCT_OK ? 'y' : 'n';
        const bool told = write(ready[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 1;
        _exit(told ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    oct_run_dir dir;
    oct_err err = {0};
    char holder[300], host[256] = {0};
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    (void)snprintf(holder, sizeof holder, "pid %ld on %s", (long)child, host);
    assert_int_equal(oct_run_dir_open(path, &dir, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, holder));
    assert_non_null(strstr(err.msg, path));

    /* The lock goes with its process, whatever ends it. */
    assert_int_equal(write(done[1], "x", 1), 1);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(oct_run_dir_open(path, &dir, &err), OCT_OK);
    oct_run_dir_close(&dir);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(done[i]);
    }
}

static void open__path_too_long_or_a_file__is_refused(void **state)
{
    (void)state;
    static char path[OCT_PATH_MAX + 10];
    oct_run_dir dir;
    oct_err err = {0};
    memset(path, 'x', sizeof path - 1);
    assert_int_equal(oct_run_dir_open(path, &dir, &err), OCT_E_CONFIG);
    assert_int_not_equal(oct_run_dir_open(temp_dir_write(&files, "file", "text"), &dir, &err),
                         OCT_OK);
    assert_non_null(strstr(err.msg, "/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open__new_nested_directory__is_made),
        cmocka_unit_test(open__directory_of_something_else__is_refused_untouched),
        cmocka_unit_test(open__rest_of_a_start__is_taken_over),
        cmocka_unit_test(open__locked_by_another_process__names_pid_and_host),
        cmocka_unit_test(open__path_too_long_or_a_file__is_refused),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
