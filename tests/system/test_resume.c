/* A run that was stopped and resumed is the run that was never stopped; what is not the same run
 * is not resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>

#include "base/file.h"
#include "train_fixture.h"

static int make_files(void **state)
{
    (void)state;
    files = train_files_create();
    write_text(&files, "short.txt", 400); /* 12 samples: three steps of four are an epoch */
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    oct_fault_disarm_all();
    temp_dir_remove(&files);
    return 0;
}

/* --- the same bits ---------------------------------------------------------------------------- */

static void assert_same_file(const char *a, const char *b)
{
    char *bytes_a = NULL, *bytes_b = NULL;
    size_t count_a = 0, count_b = 0;
    oct_err err = {0};
    const oct_file_table *table = &oct_file_table_real;
    if (oct_file_read_all(table, a, 1 << 30, &bytes_a, &count_a, &err) != OCT_OK ||
        oct_file_read_all(table, b, 1 << 30, &bytes_b, &count_b, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(count_a, count_b);
    assert_memory_equal(bytes_a, bytes_b, count_a);
    free(bytes_a);
    free(bytes_b);
}

/* The rows of metrics.jsonl are those of `r`, bit by bit. */
static void assert_metrics_hold(const char *path, const record *r)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t room = 0;
    int row = 0;
    for (; getline(&line, &room, file) > 0; row++) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(object);
        assert_true(row < r->row_count);
        assert_int_equal(json_integer_value(json_object_get(object, "step")), r->rows[row].step);
        assert_same_double(json_real_value(json_object_get(object, "loss")), r->rows[row].loss);
        assert_same_double(json_real_value(json_object_get(object, "grad_norm")),
                           r->rows[row].grad_norm);
        json_decref(object);
    }
    assert_int_equal(row, r->row_count);
    free(line);
    fclose(file);
}

static void assert_resumes_to_the_same_bits(int format, const char *recompute)
{
    const char *data = word("dataset.path=%s/short.txt", files.path);
    const char *bias = "moe.bias_update_rate=0.01";
    const char *whole_dir = word("whole-%d", format), *parts_dir = word("parts-%d", format);
    record *whole = record_create(), *first = record_create(), *rest = record_create();
    train(&files, whole_dir, format, NULL, WORDS(data, bias, recompute), whole);
    assert_trained(whole);
    train(&files, parts_dir, format, NULL, WORDS(data, bias, recompute, "training.stop_at_step=3"),
          first);
    assert_trained(first);
    assert_int_equal(first->result.state.step, 3);
    train(&files, parts_dir, format, NULL, WORDS(data, bias, recompute), rest);
    assert_trained(rest);

    assert_int_equal(whole->row_count, 6);
    assert_int_equal(first->row_count, 3);
    assert_int_equal(rest->row_count, 3);
    for (int i = 0; i < 6; i++) {
        const record *part = i < 3 ? first : rest;
        assert_same_row(&part->rows[i % 3], &whole->rows[i]);
        assert_true(part->masters[i % 3] == whole->masters[i]);
        assert_true(part->moments[i % 3] == whole->moments[i]);
    }
    assert_memory_equal(&rest->result.state, &whole->result.state, sizeof rest->result.state);
    assert_metrics_hold(word("%s/%s/metrics.jsonl", files.path, parts_dir), whole);
    assert_same_file(word("%s/%s/checkpoints/step-6/__0_0.distcp", files.path, whole_dir),
                     word("%s/%s/checkpoints/step-6/__0_0.distcp", files.path, parts_dir));
    free(whole);
    free(first);
    free(rest);
}

static void train__stopped_and_resumed_across_an_epoch__gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const recompute[FORMATS] = {"off", "full", "off"};
    for (int format = 0; format < FORMATS; format++)
        assert_resumes_to_the_same_bits(
            format, word("gradient_checkpointing.activation_checkpoint=%s", recompute[format]));
}

/* Steps after the checkpoint that a killed run had already logged are gone from metrics.jsonl. */
static void train__resumed_from_an_earlier_step__cuts_the_later_rows(void **state)
{
    (void)state;
    record *whole = record_create(), *again = record_create();
    train(&files, "earlier", 1, NULL, WORDS("checkpoint.save_steps=2"), whole);
    assert_trained(whole);
    assert_int_equal(whole->saves, 3);
    train(&files, "earlier", 1, "step-2", WORDS("checkpoint.save_steps=2"), again);
    assert_trained(again);
    assert_int_equal(again->row_count, 4);
    assert_int_equal(again->rows[0].attempt, 3);
    assert_same_row(&again->rows[3], &whole->rows[5]);
    assert_metrics_hold(word("%s/earlier/metrics.jsonl", files.path), whole);
    free(whole);
    free(again);
}

/* After step k, with a save after each step. */
static void assert_save_before_update(record *r, oct_build *build)
{
    (void)build;
    assert_int_equal(r->saved_step, r->attempts == 1 ? -1 : r->attempts - 1);
}

/* A save in flight reads the masters and moments that an update changes. */
static void train__save_in_the_background__ends_before_the_next_update(void **state)
{
    (void)state;
    record *r = record_create();
    r->stepped = assert_save_before_update;
    train(&files, "flight", 1, NULL, WORDS("checkpoint.save_steps=1"), r);
    assert_trained(r);
    assert_true(r->saves > 2);
    free(r);
}

/* FR-34 on one rank. */
static void train__resumed_anywhere_in_the_schedule__has_the_same_rates(void **state)
{
    (void)state;
    enum { TOTAL = 30 };
    static const int at[] = {5, 10, 11, 29};
    const char *const common[] = {"training.train_iters=30", "lr_scheduler.warmup_steps=10",
                                  "lr_scheduler.decay_type=cosine",
                                  "lr_scheduler.min_lr_factor=0.1"};
    record *whole = record_create(), *part = record_create();
    train(&files, "rates", 0, NULL, WORDS(common[0], common[1], common[2], common[3]), whole);
    assert_trained(whole);
    assert_int_equal(whole->row_count, TOTAL);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        const char *dir = word("rates-%d", at[i]);
        const char *stop = word("training.stop_at_step=%d", at[i]);
        train(&files, dir, 0, NULL, WORDS(common[0], common[1], common[2], common[3], stop), part);
        assert_trained(part);
        stop = word("training.stop_at_step=%d", at[i] + 2);
        train(&files, dir, 0, NULL, WORDS(common[0], common[1], common[2], common[3], stop), part);
        assert_trained(part);
        assert_int_equal(part->row_count, at[i] + 2 > TOTAL ? 1 : 2);
        for (int r = 0; r < part->row_count; r++)
            assert_same_row(&part->rows[r], &whole->rows[at[i] + r]);
    }
    free(whole);
    free(part);
}

static void train__finished_run__has_nothing_to_do(void **state)
{
    (void)state;
    record *r = record_create();
    train(&files, "finished", 1, NULL, WORDS("training.train_iters=2"), r);
    assert_trained(r);
    train(&files, "finished", 1, NULL, WORDS("training.train_iters=2"), r);
    assert_trained(r);
    assert_true(r->result.nothing_to_do);
    assert_int_equal(r->row_count, 0);
    assert_int_equal(r->saves, 0);
    assert_non_null(strstr(r->message, "nothing to do"));
    free(r);
}

/* --- which checkpoint ------------------------------------------------------------------------- */

static void train__word_to_resume_from__is_followed_or_refused(void **state)
{
    (void)state;
    record *r = record_create();
    const char *const *words = WORDS("checkpoint.save_steps=2");
    train(&files, "word", 1, "latest", words, r);
    assert_refused(r, OCT_E_CHECKPOINT, "no checkpoint found", "word/checkpoints", NULL);
    train(&files, "word", 1, "step-4", words, r);
    assert_refused(r, OCT_E_CHECKPOINT, "step-4", NULL);
    train(&files, "word", 1, "none", words, r);
    assert_trained(r);
    assert_int_equal(r->result.state.step, 6);
    train(&files, "word", 1, "none", words, r);
    assert_refused(r, OCT_E_CONFIG, "3 checkpoints", "--resume none", NULL);
    train(&files, "word", 1, "newest", words, r);
    assert_refused(r, OCT_E_CONFIG, "'newest'", "step-N", NULL);
    train(&files, "word", 1, "step-5", words, r);
    assert_refused(r, OCT_E_CHECKPOINT, "step-5", NULL);
    train(&files, "word", 1, "step-4", words, r);
    assert_trained(r);
    assert_int_equal(r->row_count, 2);
    assert_int_equal(r->rows[0].step, 5);
    free(r);
}

static void flip_byte(const char *path, long offset)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 0x10, file), byte ^ 0x10);
    assert_int_equal(fclose(file), 0);
}

static void train__newest_checkpoint_damaged__goes_on_from_the_one_before(void **state)
{
    (void)state;
    record *whole = record_create(), *again = record_create();
    const char *const *words = WORDS("checkpoint.save_steps=2");
    train(&files, "damaged", 1, NULL, words, whole);
    assert_trained(whole);
    flip_byte(word("%s/damaged/checkpoints/step-6/__0_0.distcp", files.path), 100000);
    train(&files, "damaged", 1, "step-6", words, again);
    assert_refused(again, OCT_E_CHECKPOINT, "__0_0.distcp", NULL);
    train(&files, "damaged", 1, NULL, words, again);
    assert_trained(again);
    assert_true(again->warnings >= 1);
    assert_non_null(strstr(again->warning, "step-6"));
    assert_int_equal(again->row_count, 2);
    assert_same_row(&again->rows[1], &whole->rows[5]);
    free(whole);
    free(again);
}

/* A path counts only while the run directory has no checkpoint of its own. */
static void train__restore_from_a_path__starts_from_it_once(void **state)
{
    (void)state;
    record *old = record_create(), *r = record_create();
    train(&files, "donor", 1, NULL, WORDS("training.stop_at_step=3"), old);
    assert_trained(old);
    const char *from = word("checkpoint.restore_from=%s/donor/checkpoints/step-3", files.path);
    train(&files, "heir", 1, NULL, WORDS(from, "training.stop_at_step=4"), r);
    assert_trained(r);
    assert_int_equal(r->row_count, 1);
    assert_int_equal(r->rows[0].step, 4);
    train(&files, "heir", 1, NULL, WORDS(from), r);
    assert_trained(r);
    assert_int_equal(r->row_count, 2);
    assert_int_equal(r->rows[0].step, 5);

    from = word("checkpoint.restore_from=%s/donor/checkpoints", files.path);
    train(&files, "heir-of-latest", 1, NULL, WORDS(from, "training.stop_at_step=4"), r);
    assert_trained(r);
    assert_int_equal(r->rows[0].step, 4);

    from = word("checkpoint.restore_from=%s/nowhere/step-3", files.path);
    train(&files, "heir-of-none", 1, NULL, WORDS(from), r);
    assert_refused(r, OCT_E_CHECKPOINT, "nowhere/step-3", NULL);
    free(old);
    free(r);
}

static void remember_first_masters(record *r, oct_build *build)
{
    if (r->attempts == 0)
        *(uint64_t *)r->arg = hash_masters(build);
}

/* restore_optimizer: false takes the weights and nothing else: another format may go on with them.
 */
static void train__weights_only__starts_at_step_0_with_the_weights(void **state)
{
    (void)state;
    uint64_t first = 0;
    record *old = record_create();
    train(&files, "teacher", 0, NULL, WORDS("training.stop_at_step=3"), old);
    assert_trained(old);
    const char *from = word("checkpoint.restore_from=%s/teacher/checkpoints/step-3", files.path);
    record *r = record_create();
    r->gradients = remember_first_masters;
    r->arg = &first;
    train(&files, "pupil", 2, NULL,
          WORDS(from, "checkpoint.restore_optimizer=false", "training.micro_batch_size=4"), r);
    assert_trained(r);
    assert_int_equal(r->row_count, 6);
    assert_int_equal(r->rows[0].step, 1);
    assert_int_equal(r->rows[0].attempt, 1);
    assert_true(first == old->masters[2]);
    free(old);
    free(r);
}

/* Every field of yarn decides about numbers: each is compared. */
static void train__another_yarn_field__is_refused(void **state)
{
    (void)state;
    record *r = record_create();
#define YARN(changes) "model.config_overrides.rope_scaling={type: yarn, " changes "}"
#define FACTOR        "factor: 4.0, "
#define MSCALE        "mscale: 0.7, "
#define ALL_DIM       "mscale_all_dim: 1.2, "
#define FAST          "beta_fast: 32, "
#define SLOW          "beta_slow: 1, "
#define ATTENTION     "attention_factor: 1.3, "
#define ORIGINAL      "original_max_position_embeddings: 64, "
#define TRUNCATE      "truncate: true"
    const char *const saved = YARN(FACTOR MSCALE ALL_DIM FAST SLOW ATTENTION ORIGINAL TRUNCATE);
    const struct {
        const char *field, *word;
    } others[] = {
        {"factor", YARN("factor: 8.0, " MSCALE ALL_DIM FAST SLOW ATTENTION ORIGINAL TRUNCATE)},
        {"mscale", YARN(FACTOR "mscale: 0.1, " ALL_DIM FAST SLOW ATTENTION ORIGINAL TRUNCATE)},
        {"mscale_all_dim",
         YARN(FACTOR MSCALE "mscale_all_dim: 3.0, " FAST SLOW ATTENTION ORIGINAL TRUNCATE)},
        {"beta_fast",
         YARN(FACTOR MSCALE ALL_DIM "beta_fast: 16, " SLOW ATTENTION ORIGINAL TRUNCATE)},
        {"beta_slow",
         YARN(FACTOR MSCALE ALL_DIM FAST "beta_slow: 2, " ATTENTION ORIGINAL TRUNCATE)},
        {"attention_factor",
         YARN(FACTOR MSCALE ALL_DIM FAST SLOW "attention_factor: 1.1, " ORIGINAL TRUNCATE)},
        {"original_max_position_embeddings",
         YARN(FACTOR MSCALE ALL_DIM FAST SLOW ATTENTION
              "original_max_position_embeddings: 32, " TRUNCATE)},
        {"truncate", YARN(FACTOR MSCALE ALL_DIM FAST SLOW ATTENTION ORIGINAL "truncate: false")},
    };
    train(&files, "yarn", 1, NULL, WORDS("training.stop_at_step=1", saved), r);
    assert_trained(r);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        train(&files, "yarn", 1, NULL, WORDS("training.stop_at_step=2", others[i].word), r);
        assert_refused(r, OCT_E_CHECKPOINT, word("rope_%s ", others[i].field), "train_state.model",
                       NULL);
    }
    train(&files, "yarn", 1, NULL, WORDS("training.stop_at_step=2", saved), r);
    assert_trained(r);
    assert_int_equal(r->row_count, 1);
    free(r);
}

/* --- another run ------------------------------------------------------------------------------ */

static void train__another_identity__is_refused_with_both_values(void **state)
{
    (void)state;
    record *r = record_create();
    train(&files, "identity", 1, NULL, WORDS("training.stop_at_step=2"), r);
    assert_trained(r);
    const struct {
        const char *word, *key, *saved, *now;
    } cases[] = {
        {"training.global_batch_size=8", "global_batch_size", " 4,", " 8 "},
        {"training.micro_batch_size=4", "micro_batch_size", " 2,", " 4 "},
        {"training.seq_length=16", "seq_length", " 32,", " 16 "},
        {"seed=7", "seed", " 2026,", " 7 "},
        {"dataset.shuffle=false", "shuffle", " 1,", " 0 "},
        {"model.config_overrides.rope_theta=5000.0", "rope_theta", " 10000", " 5000"},
        {"model.config_overrides.pad_token_id=3", "pad_token_id", " -1,", " 3 "},
        {"model.torch_dtype=float32", "torch_dtype", "bfloat16", "float32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        train(&files, "identity", 1, NULL, WORDS(cases[i].word), r);
        assert_refused(r, OCT_E_CHECKPOINT, cases[i].key, cases[i].saved, cases[i].now, NULL);
    }
    train(&files, "identity", 2, NULL, NULL, r);
    assert_refused(r, OCT_E_CHECKPOINT, "mxfp8_e4m3", "hif8", "train_state.format", NULL);
    train(&files, "identity", 1, NULL, WORDS(word("dataset.path=%s/short.txt", files.path)), r);
    assert_refused(r, OCT_E_CHECKPOINT, "train_state.data", NULL);
    /* Nothing was lost by the refusals. */
    train(&files, "identity", 1, NULL, NULL, r);
    assert_trained(r);
    assert_int_equal(r->rows[0].step, 3);
    free(r);
}

static void train__other_configuration_without_a_checkpoint__is_refused(void **state)
{
    (void)state;
    record *r = record_create();
    assert_int_equal(oct_fault_arm("trainer.gradient", 1, OCT_FAULT_FAIL, &r->err), OCT_OK);
    const char *stop = "training.max_consecutive_skips=1";
    train(&files, "unsaved", 1, NULL, WORDS(stop), r);
    assert_refused(r, OCT_E_NONFINITE, "1 steps in a row", NULL);
    train(&files, "unsaved", 1, NULL, WORDS(stop, "optimizer.lr=2.0e-3"), r);
    assert_refused(r, OCT_E_CONFIG, "another configuration", "unsaved/config.yaml", NULL);
    train(&files, "unsaved", 1, NULL, WORDS(stop), r);
    assert_trained(r);
    assert_int_equal(r->rows[0].attempt, 1);
    free(r);
}

/* A run that failed before its first checkpoint left nothing that keeps it from starting again. */
static void train__start_failed_after_the_directory_was_made__may_start_again(void **state)
{
    (void)state;
    record *r = record_create();
    const char *from = word("checkpoint.restore_from=%s/nowhere/step-3", files.path);
    train(&files, "retry", 1, NULL, WORDS(from), r);
    assert_refused(r, OCT_E_CHECKPOINT, "nowhere", NULL);
    train(&files, "retry", 1, NULL, NULL, r);
    assert_trained(r);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__stopped_and_resumed_across_an_epoch__gives_the_same_bits),
        cmocka_unit_test(train__resumed_from_an_earlier_step__cuts_the_later_rows),
        cmocka_unit_test(train__resumed_anywhere_in_the_schedule__has_the_same_rates),
        cmocka_unit_test(train__save_in_the_background__ends_before_the_next_update),
        cmocka_unit_test(train__finished_run__has_nothing_to_do),
        cmocka_unit_test(train__word_to_resume_from__is_followed_or_refused),
        cmocka_unit_test(train__newest_checkpoint_damaged__goes_on_from_the_one_before),
        cmocka_unit_test(train__restore_from_a_path__starts_from_it_once),
        cmocka_unit_test(train__weights_only__starts_at_step_0_with_the_weights),
        cmocka_unit_test(train__another_identity__is_refused_with_both_values),
        cmocka_unit_test(train__another_yarn_field__is_refused),
        cmocka_unit_test(train__other_configuration_without_a_checkpoint__is_refused),
        cmocka_unit_test(train__start_failed_after_the_directory_was_made__may_start_again),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
