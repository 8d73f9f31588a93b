/* A row of metrics that cannot be written stops the run with that error, after what was learned so
 * far is in a checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>

#include "train_fixture.h"

static temp_dir files;
static struct rlimit unlimited;

static int make_files(void **state)
{
    (void)state;
    files = train_files_create();
    return signal(SIGXFSZ, SIG_IGN) == SIG_ERR || getrlimit(RLIMIT_FSIZE, &unlimited) != 0;
}

static void limit_files(rlim_t bytes)
{
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = unlimited.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The row of attempt 3, and nothing else if the hook below follows. */
static void fill_disk_in_step_3(record *r, oct_build *build)
{
    (void)build;
    if (r->attempts == 2)
        limit_files(1);
}

static void free_disk(record *r, oct_build *build)
{
    (void)r;
    (void)build;
    limit_files(unlimited.rlim_cur);
}

static void train__row_not_written__saves_the_step_and_reports_the_row(void **state)
{
    (void)state;
    record *whole = record_create(), *r = record_create();
    train(&files, "undisturbed", 1, NULL, NULL, whole);
    assert_trained(whole);
    r->gradients = fill_disk_in_step_3;
    r->stepped = free_disk;
    train(&files, "lost", 1, NULL, NULL, r);
    assert_refused(r, OCT_E_IO, "cannot write metrics", "File too large", "lost/metrics.jsonl",
                   NULL);
    assert_int_equal(r->row_count, 2);
    assert_int_equal(r->saved_step, 3);
    assert_int_equal(r->saves, 1);
    assert_int_equal(r->warnings, 0);
    /* It goes on as if nothing had happened, but for the row that was lost. */
    r->gradients = r->stepped = NULL;
    train(&files, "lost", 1, NULL, NULL, r);
    assert_trained(r);
    assert_int_equal(r->row_count, 3);
    for (int i = 0; i < 3; i++)
        assert_same_row(&r->rows[i], &whole->rows[3 + i]);
    assert_int_equal(r->masters[2], whole->masters[5]);
    free(whole);
    free(r);
}

/* Both the one that was due and the one of the end. */
static void train__row_not_written_after_a_save__both_are_there(void **state)
{
    (void)state;
    record *r = record_create();
    r->gradients = fill_disk_in_step_3;
    r->stepped = free_disk;
    train(&files, "saved", 0, NULL,
          WORDS("checkpoint.save_steps=2", "checkpoint.async=false", "checkpoint.keep_latest_k=5"),
          r);
    assert_refused(r, OCT_E_IO, "cannot write metrics", NULL);
    assert_int_equal(r->saves, 2);
    assert_int_equal(r->saved_step, 3);
    free(r);
}

static void train__nothing_can_be_written__reports_the_row_and_warns(void **state)
{
    (void)state;
    record *r = record_create();
    r->gradients = fill_disk_in_step_3;
    train(&files, "full", 1, NULL, NULL, r);
    limit_files(unlimited.rlim_cur);
    assert_refused(r, OCT_E_IO, "cannot write metrics", "full/metrics.jsonl", NULL);
    assert_int_equal(r->saves, 0);
    assert_int_equal(r->warnings, 1);
    assert_non_null(strstr(r->warning, "a checkpoint is lost as well: "));
    free(r);
}

/* A validation row. */
static void fill_disk_after_step_2(record *r, oct_build *build)
{
    (void)build;
    if (r->attempts == 2)
        limit_files(1);
}

static void train__validation_row_not_written__reports_it(void **state)
{
    (void)state;
    record *r = record_create();
    r->stepped = fill_disk_after_step_2;
    train(&files, "validated", 1, NULL,
          WORDS(word("dataset.validation.path=%s/text.txt", files.path),
                "dataset.validation.every=2", "dataset.validation.steps=1"),
          r);
    limit_files(unlimited.rlim_cur);
    assert_refused(r, OCT_E_IO, "cannot write metrics", NULL);
    assert_int_equal(r->row_count, 2);
    assert_int_equal(r->warnings, 1); /* it was tried */
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__row_not_written__saves_the_step_and_reports_the_row),
        cmocka_unit_test(train__row_not_written_after_a_save__both_are_there),
        cmocka_unit_test(train__nothing_can_be_written__reports_the_row_and_warns),
        cmocka_unit_test(train__validation_row_not_written__reports_it),
    };
    return cmocka_run_group_tests(tests, make_files, remove_train_files);
}
