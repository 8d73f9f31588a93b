/* A run that goes on, on another number of ranks, is the run that was never interrupted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

#include "team_fixture.h"

enum { STEPS = 8, SKIPPED = 4 };

static int disarm(void **state)
{
    (void)state;
    oct_fault_disarm_all();
    return 0;
}

static void arm(const char *point, int nth, int rank, oct_fault_action action)
{
    oct_err err = {0};
    assert_int_equal(oct_fault_arm_rank(point, nth, rank, action, &err), OCT_OK);
}

/* Up to `last`, in the folder `dir`. */
static team *go_on(const char *dir, int format, int ranks, int last)
{
    team *t = team_create(ranks, 0);
    train_team(&files, dir, format, NULL,
               WORDS("training.seq_length=16", "training.micro_batch_size=1",
                     "training.global_batch_size=8", "lr_scheduler.warmup_steps=5",
                     "training.train_iters=12", "moe.bias_update_rate=0.01",
                     word("training.stop_at_step=%d", last)),
               t);
    assert_team_trained(t);
    return t;
}

static uint64_t saved(const char *dir, int step)
{
    return checkpoint_hash(word("%s/%s/checkpoints/step-%d", files.path, dir, step));
}

/* FR-26, FR-34: rows (learning rates and losses of the data that was read) and weights. */
static void assert_chain_is_one_run(int format)
{
    static const int ranks[] = {8, 2, 4, 1}, last[] = {2, 4, 6, STEPS};
    const char *one = format == 0 ? "one-0" : format == 1 ? "one-1" : "one-2";
    const char *chain = format == 0 ? "chain-0" : format == 1 ? "chain-1" : "chain-2";
    arm("trainer.gradient", SKIPPED, 0, OCT_FAULT_FAIL);
    team *whole = go_on(one, format, 1, STEPS);
    assert_int_equal(whole->of[0]->row_count, STEPS + 1);
    int row = 0;
    for (int i = 0; i < 4; i++) {
        if (i == 1) /* the second attempt of this part is the fourth of the run */
            arm("trainer.gradient", 2, 1, OCT_FAULT_FAIL);
        team *t = go_on(chain, format, ranks[i], last[i]);
        for (int r = 0; r < t->of[0]->row_count; r++)
            assert_same_row(&t->of[0]->rows[r], &whole->of[0]->rows[row++]);
        for (int r = 0; r < ranks[i]; r++)
            assert_int_equal(t->of[r]->result.state.step, last[i]);
        if (i == 3) {
            assert_true(team_state_hash(t) == team_state_hash(whole));
            assert_true(team_storage_hash(t) == team_storage_hash(whole));
        }
        team_free(t);
    }
    assert_int_equal(row, STEPS + 1);
    assert_true(saved(chain, STEPS) == saved(one, STEPS));
    team_free(whole);
}

static void train__bf16_on_8_2_4_1_ranks__is_one_run(void **state)
{
    (void)state;
    assert_chain_is_one_run(0);
}

static void train__mxfp8_on_8_2_4_1_ranks__is_one_run(void **state)
{
    (void)state;
    assert_chain_is_one_run(1);
}

static void train__hif8_on_8_2_4_1_ranks__is_one_run(void **state)
{
    (void)state;
    assert_chain_is_one_run(2);
}

static void train__complete_run_on_other_ranks__has_nothing_to_do(void **state)
{
    (void)state;
    team_free(go_on("complete", 1, 2, 2));
    team *t = go_on("complete", 1, 4, 2);
    for (int r = 0; r < 4; r++)
        assert_true(t->of[r]->result.nothing_to_do);
    assert_int_equal(t->of[0]->row_count + t->of[0]->saves, 0);
    team_free(t);
}

/* --- signals (FR-32) -------------------------------------------------------------------------- */

static bool exists(const char *path)
{
    oct_file_info info = {0};
    oct_err err = {0};
    assert_int_equal(oct_file_stat(&oct_file_table_real, path, &info, &err), OCT_OK);
    return info.kind != OCT_FILE_NONE;
}

static team *interrupted(const char *dir, const char *point, int nth, int rank, const char *more)
{
    arm(point, nth, rank, OCT_FAULT_TERM);
    team *t = team_create(4, 0);
    train_team(&files, dir, 1, NULL,
               WORDS("training.seq_length=16", "training.micro_batch_size=1",
                     "training.global_batch_size=8", "training.stop_at_step=6", more),
               t);
    assert_team_trained(t);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(t->of[r]->result.signal, SIGTERM);
        assert_int_equal(t->of[r]->result.state.step, t->of[0]->result.state.step);
    }
    assert_int_equal(oct_fault_armed, 0);
    return t;
}

/* One committed checkpoint, of the step at which all stopped. */
static void assert_one_checkpoint(const char *dir, int step)
{
    for (int s = 0; s <= 6; s++)
        assert_int_equal(exists(word("%s/%s/checkpoints/step-%d", files.path, dir, s)), s == step);
}

static void train__sigterm_in_a_pass_of_one_rank__all_stop_at_the_same_step(void **state)
{
    (void)state;
    team *t = interrupted("pass", "trainer.pass", 4, 1, "moe.bias_update_rate=0");
    assert_int_equal(t->of[0]->result.state.step, 2);
    assert_int_equal(t->of[0]->row_count, 2);
    assert_one_checkpoint("pass", 2);
    team_free(t);
}

static void train__sigterm_while_a_rank_builds__nothing_is_saved(void **state)
{
    (void)state;
    team *t = interrupted("build", "trainer.build", 5, 1, "moe.bias_update_rate=0");
    assert_int_equal(t->of[0]->result.state.step, 0);
    assert_int_equal(t->of[0]->row_count, 0);
    assert_one_checkpoint("build", -1);
    team_free(t);
    t = interrupted("data", "trainer.data", 1, 3, "moe.bias_update_rate=0");
    assert_int_equal(t->of[0]->row_count, 0);
    assert_one_checkpoint("data", -1);
    team_free(t);
}

static void train__sigterm_during_a_save__the_save_completes(void **state)
{
    (void)state;
    team *t = interrupted("save", "trainer.saving", 1, 2, "checkpoint.save_steps=2");
    assert_true(t->of[0]->result.state.step >= 2);
    assert_true(exists(word("%s/save/checkpoints/step-2", files.path)));
    assert_true(exists(
        word("%s/save/checkpoints/step-%lld", files.path, (long long)t->of[0]->result.state.step)));
    team_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(train__bf16_on_8_2_4_1_ranks__is_one_run, disarm),
        cmocka_unit_test_teardown(train__mxfp8_on_8_2_4_1_ranks__is_one_run, disarm),
        cmocka_unit_test_teardown(train__hif8_on_8_2_4_1_ranks__is_one_run, disarm),
        cmocka_unit_test(train__complete_run_on_other_ranks__has_nothing_to_do),
        cmocka_unit_test_teardown(train__sigterm_in_a_pass_of_one_rank__all_stop_at_the_same_step,
                                  disarm),
        cmocka_unit_test_teardown(train__sigterm_while_a_rank_builds__nothing_is_saved, disarm),
        cmocka_unit_test_teardown(train__sigterm_during_a_save__the_save_completes, disarm),
    };
    return cmocka_run_group_tests(tests, make_team_files, remove_train_files);
}
