/* A step or a save that fails in the middle leaves nothing half done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "train_fixture.h"

static int disarm(void **state)
{
    (void)state;
    oct_fault_disarm_all();
    return 0;
}

static void arm(const char *point, int nth)
{
    oct_err err = {0};
    assert_int_equal(oct_fault_arm(point, nth, OCT_FAULT_FAIL, &err), OCT_OK);
}

static bool has_checkpoint(const char *run, int step)
{
    oct_file_info info = {0};
    oct_err err = {0};
    assert_int_equal(oct_file_stat(&oct_file_table_real,
                                   word("%s/%s/checkpoints/step-%d", files.path, run, step), &info,
                                   &err),
                     OCT_OK);
    return info.kind != OCT_FILE_NONE;
}

static void train__update_fails__no_row_no_checkpoint_and_may_go_on(void **state)
{
    (void)state;
    record *whole = record_create(), *r = record_create();
    train(&files, "whole", 1, NULL, NULL, whole);
    assert_trained(whole);
    arm("optimizer.update", 4);
    train(&files, "update", 1, NULL, WORDS("checkpoint.save_steps=2"), r);
    assert_int_not_equal(r->status, OCT_OK);
    assert_int_equal(r->row_count, 3);
    assert_true(has_checkpoint("update", 2));
    assert_false(has_checkpoint("update", 3));
    assert_false(has_checkpoint("update", 4));
    train(&files, "update", 1, NULL, WORDS("checkpoint.save_steps=2"), r);
    assert_trained(r);
    assert_int_equal(r->row_count, 4);
    for (int i = 0; i < 4; i++)
        assert_same_row(&r->rows[i], &whole->rows[2 + i]);
    free(whole);
    free(r);
}

static void train__save_fails_and_continues__warns_and_saves_the_next(void **state)
{
    (void)state;
    for (int background = 0; background < 2; background++) {
        const char *run = word("continue-%d", background);
        record *r = record_create();
        arm("checkpoint.publish", 1);
        train(&files, run, 1, NULL,
              WORDS("checkpoint.save_steps=2",
                    word("checkpoint.async=%s", background ? "true" : "false")),
              r);
        assert_trained(r);
        assert_int_equal(r->row_count, 6);
        assert_int_equal(r->warnings, 1);
        assert_non_null(strstr(r->warning, "without this checkpoint"));
        assert_int_equal(r->saves, 2);
        assert_false(r->result.last_save_failed);
        assert_false(has_checkpoint(run, 2));
        assert_true(has_checkpoint(run, 4) && has_checkpoint(run, 6));
        free(r);
    }
}

static void train__last_save_fails__is_told(void **state)
{
    (void)state;
    record *r = record_create();
    arm("checkpoint.publish", 2);
    train(&files, "last", 1, NULL, WORDS("checkpoint.save_steps=3"), r);
    assert_trained(r);
    assert_true(r->result.last_save_failed);
    assert_true(has_checkpoint("last", 3));
    assert_false(has_checkpoint("last", 6));
    /* The work since step 3 is done again, and this time saved. */
    train(&files, "last", 1, NULL, WORDS("checkpoint.save_steps=3"), r);
    assert_trained(r);
    assert_int_equal(r->row_count, 3);
    assert_true(has_checkpoint("last", 6));
    free(r);
}

static void train__save_fails_and_stops__is_a_checkpoint_error(void **state)
{
    (void)state;
    record *r = record_create();
    arm("checkpoint.publish", 1);
    train(&files, "stop", 1, NULL, WORDS("checkpoint.save_steps=2", "checkpoint.on_failure=stop"),
          r);
    assert_refused(r, OCT_E_CHECKPOINT, "step-2", NULL);
    assert_true(r->row_count >= 2 && r->row_count <= 4);
    assert_false(has_checkpoint("stop", 2));
    free(r);
}

/* Every damaged checkpoint is passed over, and if none is left the run does not silently restart.
 */
static void train__no_checkpoint_verifies__is_refused(void **state)
{
    (void)state;
    record *r = record_create();
    train(&files, "broken", 1, NULL, WORDS("training.stop_at_step=2"), r);
    assert_trained(r);
    temp_dir_write(&files, "broken/checkpoints/step-2/COMMIT.json", "{}");
    train(&files, "broken", 1, NULL, NULL, r);
    assert_refused(r, OCT_E_CHECKPOINT, "broken/checkpoints", "none of them is whole", NULL);
    assert_non_null(strstr(r->warning, "step-2"));
    assert_int_equal(r->row_count, 0);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(train__update_fails__no_row_no_checkpoint_and_may_go_on, disarm),
        cmocka_unit_test_teardown(train__save_fails_and_continues__warns_and_saves_the_next,
                                  disarm),
        cmocka_unit_test_teardown(train__last_save_fails__is_told, disarm),
        cmocka_unit_test_teardown(train__save_fails_and_stops__is_a_checkpoint_error, disarm),
        cmocka_unit_test(train__no_checkpoint_verifies__is_refused),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
