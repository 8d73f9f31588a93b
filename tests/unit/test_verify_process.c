/* Programs that verify runs: exit codes, signals, output, environment, time limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "temp_dir.h"
#include "verify/process.h"

static oct_process_result run(const char *script, oct_process_options options)
{
    oct_process_result result;
    oct_err err = {0};
    const char *argv[] = {"sh", "-c", script, NULL};
    options.argv = argv;
    assert_int_equal(oct_process_run(&options, &result, &err), OCT_OK);
    return result;
}

static void assert_file(const char *path, const char *text)
{
    char found[256] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    found[fread(found, 1, sizeof found - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, text);
}

static void exit_codes_and_signals(void **state)
{
    (void)state;
    const oct_process_result good = run("exit 0", (oct_process_options){0});
    assert_int_equal(good.exit_code, 0);
    assert_int_equal(good.signal, 0);
    assert_int_equal(run("exit 5", (oct_process_options){0}).exit_code, 5);
    const oct_process_result killed = run("kill -9 $$", (oct_process_options){0});
    assert_int_equal(killed.exit_code, -1);
    assert_int_equal(killed.signal, SIGKILL);
    assert_false(killed.timed_out);
}

static void output_environment_and_folder(void **state)
{
    (void)state;
    char out[300], errors[300];
    const temp_dir dir = temp_dir_create();
    (void)snprintf(out, sizeof out, "%s/out", dir.path);
    (void)snprintf(errors, sizeof errors, "%s/err", dir.path);
    assert_int_equal(setenv("OCTET_WORD", "old", 1), 0);
    const char *environment[] = {"OCTET_WORD=new", "OCTET_MORE=1", NULL};
    const oct_process_options options = {
        .environment = environment, .folder = dir.path, .stdout_path = out, .stderr_path = errors};
    assert_int_equal(
        run("echo $OCTET_WORD $OCTET_MORE; test -f out && echo here >&2", options).exit_code, 0);
    assert_file(out, "new 1\n");
    assert_file(errors, "here\n");
    assert_int_equal(run("echo $OCTET_WORD", (oct_process_options){.stdout_path = out}).exit_code,
                     0);
    assert_file(out, "old\n");
    temp_dir_remove(&dir);
}

/* A shell and its child: both end at the limit. */
static void limit_ends_the_group(void **state)
{
    (void)state;
    char out[300];
    const temp_dir dir = temp_dir_create();
    (void)snprintf(out, sizeof out, "%s/out", dir.path);
    const oct_process_result result =
        run("sleep 100 & echo $!; wait",
            (oct_process_options){.stdout_path = out, .timeout_seconds = 0.3});
    assert_true(result.timed_out);
    assert_int_equal(result.signal, SIGTERM);
    assert_true(result.seconds < 20.0);
    char text[32] = "";
    FILE *file = fopen(out, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    const long child = strtol(text, NULL, 10);
    assert_true(child > 1);
    int gone = 0; /* a zombie until init takes it */
    for (int i = 0; i < 200 && !gone; i++) {
        char path[64], stat[256] = "";
        (void)snprintf(path, sizeof path, "/proc/%ld/stat", child);
        FILE *process = fopen(path, "r");
        gone = !process || !fgets(stat, sizeof stat, process) || strstr(stat, ") Z ") != NULL;
        if (process)
            fclose(process);
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    assert_true(gone);
    temp_dir_remove(&dir);
}

static void stop_ends_it(void **state)
{
    (void)state;
    const volatile sig_atomic_t stop = 1;
    const oct_process_result result = run("sleep 100", (oct_process_options){.stop = &stop});
    assert_true(result.stopped);
    assert_true(result.seconds < 20.0);
}

static void what_cannot_start(void **state)
{
    (void)state;
    oct_process_result result;
    oct_err err = {0};
    const char *argv[] = {"/no/such/program", NULL};
    assert_int_equal(oct_process_run(&(oct_process_options){.argv = argv}, &result, &err),
                     OCT_E_IO);
    assert_non_null(strstr(err.msg, "/no/such/program"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes_and_signals), cmocka_unit_test(output_environment_and_folder),
        cmocka_unit_test(limit_ends_the_group),   cmocka_unit_test(stop_ends_it),
        cmocka_unit_test(what_cannot_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
