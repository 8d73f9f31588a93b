/* SIGTERM, SIGINT and SIGHUP end a run at a step boundary with a checkpoint; during the build
 * without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

#include "base/file.h"
#include "train_fixture.h"

/* In the middle of the third step. */
static void raise_in_step_3(record *r, oct_build *build)
{
    (void)build;
    if (r->attempts == 2)
        (void)raise(*(int *)r->arg);
}

static void assert_stops_and_resumes(int number)
{
    record *whole = record_create(), *r = record_create();
    train(&files, word("undisturbed-%d", number), 1, NULL, NULL, whole);
    assert_trained(whole);
    r->gradients = raise_in_step_3;
    r->arg = &number;
    const char *dir = word("signal-%d", number);
    train(&files, dir, 1, NULL, NULL, r);
    assert_trained(r);
    assert_int_equal(r->result.signal, number);
    assert_int_equal(r->result.state.step, 3); /* the step in progress ended */
    assert_int_equal(r->row_count, 3);
    assert_int_equal(r->saved_step, 3);
    r->gradients = NULL;
    train(&files, dir, 1, NULL, NULL, r);
    assert_trained(r);
    assert_int_equal(r->result.signal, 0);
    assert_int_equal(r->row_count, 3);
    for (int i = 0; i < 3; i++)
        assert_same_row(&r->rows[i], &whole->rows[3 + i]);
    free(whole);
    free(r);
}

static void train__sigterm_within_a_step__saves_at_its_end(void **state)
{
    (void)state;
    assert_stops_and_resumes(SIGTERM);
}

static void train__sigint_within_a_step__saves_at_its_end(void **state)
{
    (void)state;
    assert_stops_and_resumes(SIGINT);
}

static void train__sighup_within_a_step__saves_at_its_end(void **state)
{
    (void)state;
    assert_stops_and_resumes(SIGHUP);
}

/* While the checkpoint of step 2 may still be on its way: that one and the last one are there. */
static void train__sigterm_during_a_save__keeps_both_checkpoints(void **state)
{
    (void)state;
    int number = SIGTERM;
    record *r = record_create();
    r->gradients = raise_in_step_3;
    r->arg = &number;
    train(&files, "during-save", 0, NULL, WORDS("checkpoint.save_steps=2"), r);
    assert_trained(r);
    assert_int_equal(r->saves, 2);
    assert_int_equal(r->saved_step, 3);
    free(r);
}

/* The last step needs no second save: the run is complete, whatever arrived. */
static void train__sigterm_in_the_last_step__completes(void **state)
{
    (void)state;
    int number = SIGTERM;
    record *r = record_create();
    r->gradients = raise_in_step_3;
    r->arg = &number;
    train(&files, "last-step", 0, NULL, WORDS("training.train_iters=3"), r);
    assert_trained(r);
    assert_int_equal(r->result.signal, 0);
    assert_int_equal(r->saved_step, 3);
    free(r);
}

/* The message about the data is the last one of the build. */
static void raise_on_message(void *arg, const char *line)
{
    (void)arg;
    if (strncmp(line, "data:", 5) == 0)
        (void)raise(SIGTERM);
}

static void train__sigterm_during_the_build__saves_nothing(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test configuration");
    oct_config config;
    load_config(&files, 1, NULL, &arena, &config);
    const char *dir = word("%s/build", files.path);
    record *r = record_create();
    const oct_train_options options = {
        .run_dir = dir,
        .observer = {
            .arg = r, .message = raise_on_message, .row = record_row, .saved = record_saved}};
    r->status = oct_train(&config, &options, &r->result, &r->err);
    assert_trained(r);
    assert_int_equal(r->result.signal, SIGTERM);
    assert_int_equal(r->row_count, 0);
    assert_int_equal(r->saves, 0);
    oct_err err = {0};
    int64_t *steps = NULL, count = -1;
    assert_int_equal(
        oct_checkpoint_list(NULL, word("%s/checkpoints", dir), &arena, &steps, &count, &err),
        OCT_OK);
    assert_int_equal(count, 0);
    /* The run directory is free and starts at step 0. */
    train(&files, "build", 1, NULL, NULL, r);
    assert_trained(r);
    assert_int_equal(r->row_count, 6);
    oct_arena_release(&arena);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__sigterm_within_a_step__saves_at_its_end),
        cmocka_unit_test(train__sigint_within_a_step__saves_at_its_end),
        cmocka_unit_test(train__sighup_within_a_step__saves_at_its_end),
        cmocka_unit_test(train__sigterm_during_a_save__keeps_both_checkpoints),
        cmocka_unit_test(train__sigterm_in_the_last_step__completes),
        cmocka_unit_test(train__sigterm_during_the_build__saves_nothing),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
