/* A step that is skipped, and failures of one rank: all ranks do the same, and soon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/profile.h"
#include "data/token_shard.h"
#include "team_fixture.h"

enum { RANKS = 4, SEQ = 16 };

static int disarm(void **state)
{
    (void)state;
    oct_fault_disarm_all();
    return 0;
}

static void arm(const char *point, int nth, int rank)
{
    oct_err err = {0};
    assert_int_equal(oct_fault_arm_rank(point, nth, rank, OCT_FAULT_FAIL, &err), OCT_OK);
}

static team *run(const char *dir, int format, const char *more)
{
    team *t = team_create(RANKS, 0);
    train_team(&files, dir, format, NULL,
               WORDS("training.seq_length=16", "training.micro_batch_size=1",
                     "training.global_batch_size=8", "training.stop_at_step=4",
                     "dataset.shuffle=false", more),
               t);
    return t;
}

/* --- FR-19 ------------------------------------------------------------------------------------ */

static void train__nan_on_rank_1_of_4__all_skip_the_step(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        arm("trainer.gradient", 3, 1);
        team *t = run(format == 0   ? "nan-0"
                      : format == 1 ? "nan-1"
                                    : "nan-2",
                      format, "moe.bias_update_rate=0.01");
        assert_team_trained(t);
        for (int r = 0; r < RANKS; r++) {
            const record *of = t->of[r];
            assert_int_equal(of->attempts, 5);
            assert_int_equal(of->result.state.step, 4);
            assert_int_equal(of->result.state.samples, 40);
            assert_true(of->masters[2] == of->masters[1] && of->masters[3] != of->masters[2]);
            assert_true(of->moments[2] == of->moments[1] && of->moments[3] != of->moments[2]);
            assert_int_equal(of->warnings, r == 0);
        }
        assert_non_null(strstr(t->of[0]->warning, "model.embed_tokens.weight"));
        const oct_step_metrics *rows = t->of[0]->rows;
        assert_true(rows[2].skipped && !rows[3].skipped);
        assert_int_equal(rows[2].refreshed_weights, 0);
        assert_same_double(rows[2].lr, rows[3].lr);
        team_free(t);
    }
}

/* --- FR-24 ------------------------------------------------------------------------------------ */

static bool exists(const char *path)
{
    oct_file_info info = {0};
    oct_err err = {0};
    assert_int_equal(oct_file_stat(&oct_file_table_real, path, &info, &err), OCT_OK);
    return info.kind != OCT_FILE_NONE;
}

/* Whole rows of metrics.jsonl; a partial one fails. */
static int rows_of(const char *dir)
{
    char *text = NULL;
    size_t bytes = 0;
    oct_err err = {0};
    const char *path = word("%s/%s/metrics.jsonl", files.path, dir);
    if (!exists(path))
        return 0;
    assert_int_equal(oct_file_read_all(&oct_file_table_real, path, 1 << 20, &text, &bytes, &err),
                     OCT_OK);
    int rows = 0;
    for (size_t i = 0; i < bytes; i++)
        rows += text[i] == '\n';
    assert_true(bytes == 0 || text[bytes - 1] == '\n');
    free(text);
    return rows;
}

static void assert_ends(const char *dir, const char *more, oct_status code, int origin,
                        const char *message, int rows)
{
    const double started = oct_clock_seconds();
    team *t = run(dir, 1, more);
    assert_true(oct_clock_seconds() - started < 30.0);
    assert_team_failed(t, code, origin, message);
    assert_int_equal(rows_of(dir), rows);
    for (int step = 0; step <= 4; step++)
        assert_false(exists(word("%s/%s/checkpoints/step-%d", files.path, dir, step)));
    assert_int_equal(oct_fault_armed, 0);
    team_free(t);
}

/* Sample 10 is the third of step 2: micro-step 0 of rank 2. Its tokens are 160 .. 175. */
static void write_bad_shard(void)
{
    uint32_t ids[SEQ * 40];
    oct_err err = {0};
    oct_token_shard_writer *writer = NULL;
    for (int i = 0; i < SEQ * 40; i++)
        ids[i] = (uint32_t)(i * 7 % 300);
    const char *path = temp_dir_name(&files, "bad.bin");
    assert_int_equal(oct_token_shard_create(path, 2, 512, "test", &writer, &err), OCT_OK);
    assert_int_equal(oct_token_shard_append(writer, ids, SEQ * 40, &err), OCT_OK);
    assert_int_equal(oct_token_shard_finish(writer, &err), OCT_OK);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, OCT_TOKEN_SHARD_HEADER_BYTES + 2 * 166, SEEK_SET), 0);
    const unsigned char id[2] = {600 % 256, 600 / 256};
    assert_int_equal(fwrite(id, 1, 2, file), 2);
    assert_int_equal(fclose(file), 0);
}

static void train__token_out_of_vocabulary_on_rank_2__all_end(void **state)
{
    (void)state;
    write_bad_shard();
    assert_ends("token", word("dataset.path=%s/bad.bin", files.path), OCT_E_DATA, 2, "600", 1);
}

/* That all agreed to go on without a checkpoint does not settle what fails next. */
static void train__update_fails_on_rank_2_after_a_lost_save__all_end(void **state)
{
    (void)state;
    arm("checkpoint.data", 1, 1);
    arm("optimizer.update", 2, 2);
    assert_ends("lost-save", "checkpoint.save_steps=1", OCT_E_KERNEL, 2, "cannot update weights",
                1);
}

static void train__unreadable_data_on_rank_1__all_end(void **state)
{
    (void)state;
    arm("trainer.data", 1, 1);
    assert_ends("data", "moe.bias_update_rate=0", OCT_E_DATA, 1, "cannot read training data", 0);
}

static void train__no_memory_on_rank_3__all_end(void **state)
{
    (void)state;
    arm("trainer.pass", 1, 3);
    assert_ends("pass", "moe.bias_update_rate=0", OCT_E_NOMEM, 3, "memory", 0);
    arm("trainer.build", 6, 3); /* a stage that it does alone */
    assert_ends("alone", "moe.bias_update_rate=0", OCT_E_NOMEM, 3, "cannot build", 0);
    arm("trainer.build", 8, 3); /* one in which all wait for it */
    assert_ends("together", "moe.bias_update_rate=0", OCT_E_NOMEM, 3, "cannot build", 0);
}

/* Rank 0 has ended its part of step 2 when rank 2 fails: no row of it. */
static void train__failed_update_on_rank_2__no_row_of_that_step(void **state)
{
    (void)state;
    arm("optimizer.update", 2, 2);
    team *t = run("update", 1, "moe.bias_update_rate=0");
    for (int r = 0; r < RANKS; r++) {
        assert_int_not_equal(t->of[r]->status, OCT_OK);
        assert_int_equal(t->of[r]->err.rank, 2);
    }
    assert_int_equal(rows_of("update"), 1);
    assert_false(exists(word("%s/update/checkpoints/step-1", files.path)));
    team_free(t);
}

static void train__row_not_written_by_rank_0__all_save_and_end(void **state)
{
    (void)state;
    arm("metrics.write", 2, 0);
    team *t = run("row", 1, "moe.bias_update_rate=0");
    assert_team_failed(t, OCT_E_IO, 0, "cannot write metrics");
    assert_int_equal(t->of[0]->saved_step, 2);
    assert_true(exists(word("%s/row/checkpoints/step-2", files.path)));
    assert_int_equal(rows_of("row"), 1);
    team_free(t);
}

static void train__rank_of_another_configuration__all_end(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test configuration");
    oct_config other;
    load_config_of(&files, 1, WORDS("training.global_batch_size=8", "optimizer.lr=0.5"), RANKS,
                   &arena, &other);
    team *t = team_create(RANKS, 0);
    t->config_of[2] = &other;
    train_team(&files, "other", 1, NULL, WORDS("training.global_batch_size=8"), t);
    assert_team_failed(t, OCT_E_CONFIG, 2, "ranks have different configurations");
    assert_false(exists(word("%s/other", files.path)));
    team_free(t);
    oct_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(train__nan_on_rank_1_of_4__all_skip_the_step, disarm),
        cmocka_unit_test(train__token_out_of_vocabulary_on_rank_2__all_end),
        cmocka_unit_test_teardown(train__update_fails_on_rank_2_after_a_lost_save__all_end, disarm),
        cmocka_unit_test_teardown(train__unreadable_data_on_rank_1__all_end, disarm),
        cmocka_unit_test_teardown(train__no_memory_on_rank_3__all_end, disarm),
        cmocka_unit_test_teardown(train__failed_update_on_rank_2__no_row_of_that_step, disarm),
        cmocka_unit_test_teardown(train__row_not_written_by_rank_0__all_save_and_end, disarm),
        cmocka_unit_test(train__rank_of_another_configuration__all_end),
    };
    return cmocka_run_group_tests(tests, make_team_files, remove_train_files);
}
