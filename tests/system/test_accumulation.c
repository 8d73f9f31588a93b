/* Micro-batches of one step: weights are quantized once, gradients are those of the whole batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train_fixture.h"

enum { SEQ = 32, PERIODS = 40, MAX_NUMEL = 1 << 18 };

/* repeated.txt: every sample of 32 tokens but the last is the same. */
static int make_files(void **state)
{
    (void)state;
    char text[SEQ * PERIODS + 1];
    files = train_files_create();
    for (int i = 0; i < PERIODS; i++)
        memcpy(text + i * SEQ, "the same thirty-two bytes again\n", SEQ);
    temp_dir_write_bytes(&files, "repeated.txt", text, SEQ * PERIODS);
    return 0;
}

/* All gradients of the first step, in tree order. */
typedef struct gradients {
    int64_t count;
    float values[MAX_NUMEL];
    int64_t param_begin[64];
    int64_t params;
    int64_t refresh_counts[64]; /* of each low-precision weight, after the run's last step */
    int64_t weights;
} gradients;

static void copy_gradients(record *r, oct_build *build)
{
    gradients *all = r->arg;
    if (r->attempts > 0)
        return;
    all->count = 0;
    all->params = build->tree.param_count;
    assert_true(all->params < 64);
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        const oct_param *param = build->tree.params[p];
        const int64_t numel = oct_param_numel(param);
        assert_true(all->count + numel <= MAX_NUMEL);
        all->param_begin[p] = all->count;
        memcpy(all->values + all->count, param->grad, (size_t)numel * sizeof(float));
        all->count += numel;
    }
    all->param_begin[all->params] = all->count;
}

static void copy_refresh_counts(record *r, oct_build *build)
{
    gradients *all = r->arg;
    all->weights = build->weights.count;
    for (int64_t w = 0; w < all->weights; w++)
        all->refresh_counts[w] = build->weights.shards[w]->refresh_count;
}

static record *run_with(const char *dir, int format, const char *const *words, gradients *all)
{
    record *r = record_create();
    r->gradients = copy_gradients;
    r->stepped = copy_refresh_counts;
    r->arg = all;
    train(&files, dir, format, NULL, words, r);
    assert_trained(r);
    return r;
}

/* --- FR-14 ------------------------------------------------------------------------------------ */

/* A quarter is exact in every format, so the sum of four identical micro-batches is known to the
 * bit: q + q + q + q with q = g / 4, added in this order in FP32. */
static void assert_four_times_the_same(int format, const char *recompute, const char *reshard)
{
    const char *data = word("dataset.path=%s/repeated.txt", files.path);
    gradients *one = calloc(1, sizeof *one), *four = calloc(1, sizeof *four);
    assert_non_null(one);
    assert_non_null(four);
    static int run;
    record *single = run_with(word("one-%d", run), format,
                              WORDS(data, "dataset.shuffle=false", "training.stop_at_step=2",
                                    "training.micro_batch_size=1", "training.global_batch_size=1"),
                              one);
    record *several = run_with(word("four-%d", run++), format,
                               WORDS(data, "dataset.shuffle=false", "training.stop_at_step=2",
                                     "training.micro_batch_size=1", "training.global_batch_size=4",
                                     recompute, reshard),
                               four);
    assert_int_equal(four->count, one->count);
    for (int64_t i = 0; i < one->count; i++) {
        const float q = 0.25f * one->values[i];
        float sum = q + q;
        sum += q;
        sum += q;
        if (memcmp(&sum, &four->values[i], sizeof sum) != 0)
            fail_msg("gradient element %lld is %a, required %a", (long long)i,
                     (double)four->values[i], (double)sum);
    }
    assert_same_double(several->rows[0].loss, single->rows[0].loss);
    assert_true(fabs(several->rows[0].grad_norm - single->rows[0].grad_norm) <
                1e-6 * single->rows[0].grad_norm);
    for (int i = 0; i < several->row_count; i++)
        assert_int_equal(several->rows[i].refreshed_weights, format ? 16 : 0);
    for (int64_t w = 0; w < four->weights; w++)
        assert_int_equal(four->refresh_counts[w], 3); /* at the start and after each step */
    free(single);
    free(several);
    free(one);
    free(four);
}

static void train__four_identical_micro_batches__give_the_gradient_of_one(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++)
        for (int full = 0; full < 2; full++)
            assert_four_times_the_same(format,
                                       full ? "gradient_checkpointing.activation_checkpoint=full"
                                            : "gradient_checkpointing.activation_checkpoint=off",
                                       full ? "fsdp_config.reshard_after_forward=false"
                                            : "fsdp_config.reshard_after_forward=true");
}

/* The trainer's gradient is that of the mean over the tokens: dlogits / N, nothing else. */
static void train__first_step__gradient_is_that_of_the_mean_loss(void **state)
{
    (void)state;
    const char *const *words = WORDS(word("dataset.path=%s/repeated.txt", files.path),
                                     "dataset.shuffle=false", "training.stop_at_step=1",
                                     "training.micro_batch_size=1", "training.global_batch_size=1");
    gradients *trained = calloc(1, sizeof *trained);
    assert_non_null(trained);
    record *r = run_with("mean", 1, words, trained);

    oct_arena arena;
    oct_arena_init(&arena, "test configuration");
    oct_config config;
    load_config(&files, 1, words, &arena, &config);
    oct_build build;
    oct_err err = {0};
    oct_build_init(&build, &config, NULL);
    if (oct_build_through(&build, OCT_STAGE_MASTERS, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    static const char sample[] = "the same thirty-two bytes again\nt";
    int32_t ids[SEQ + 1];
    for (int i = 0; i <= SEQ; i++)
        ids[i] = (unsigned char)sample[i];
    const oct_batch batch = {.ids = ids, .targets = ids + 1, .batch = 1, .seq = SEQ};
    const oct_run run = oct_build_run(&build, true);
    double loss = 0.0;
    if (oct_dsv3_forward_backward(build.model, &run, &batch, 1.0f / SEQ, false, &loss, &err) !=
        OCT_OK)
        fail_msg("%s", err.msg);
    assert_same_double(r->rows[0].loss, loss / SEQ);
    for (int64_t p = 0; p < build.tree.param_count; p++)
        assert_memory_equal(build.tree.params[p]->grad, trained->values + trained->param_begin[p],
                            (size_t)oct_param_numel(build.tree.params[p]) * sizeof(float));
    oct_build_release(&build);
    oct_arena_release(&arena);
    free(trained);
    free(r);
}

/* --- FR-22 on one rank ------------------------------------------------------------------------ */

static void assert_close(const gradients *a, const gradients *b, double relative)
{
    for (int64_t p = 0; p < a->params; p++) {
        double largest = 0.0, apart = 0.0;
        for (int64_t i = a->param_begin[p]; i < a->param_begin[p + 1]; i++) {
            largest = fmax(largest, fabs((double)b->values[i]));
            apart = fmax(apart, fabs((double)a->values[i] - (double)b->values[i]));
        }
        if (!(apart <= relative * largest))
            fail_msg("parameter %lld: gradients are %g apart, at most %g * %g is allowed",
                     (long long)p, apart, relative, largest);
    }
}

static void train__8_sequences_split_in_any_way__same_loss_and_gradient(void **state)
{
    (void)state;
    gradients *whole = calloc(1, sizeof *whole), *split = calloc(1, sizeof *split);
    assert_non_null(whole);
    assert_non_null(split);
    record *reference = NULL;
    for (int micro = 8; micro >= 1; micro /= 2) {
        record *r = run_with(word("split-%d", micro), 0,
                             WORDS("model.torch_dtype=float32", "training.stop_at_step=1",
                                   "training.global_batch_size=8",
                                   word("training.micro_batch_size=%d", micro)),
                             micro == 8 ? whole : split);
        if (micro == 8) {
            reference = r;
            continue;
        }
        assert_close(split, whole, 1e-6);
        assert_true(fabs(r->rows[0].loss - reference->rows[0].loss) <
                    1e-6 * reference->rows[0].loss);
        assert_true(fabs(r->rows[0].grad_norm - reference->rows[0].grad_norm) <
                    1e-6 * reference->rows[0].grad_norm);
        assert_int_equal(r->rows[0].tokens, 8 * SEQ);
        assert_int_equal(r->rows[0].expert_load_max, reference->rows[0].expert_load_max);
        free(r);
    }
    free(reference);
    free(whole);
    free(split);
}

/* --- the global order of the sum -------------------------------------------------------------- */

/* What the order of the sum is checked with: the data of the run, once more. */
typedef struct refold {
    oct_dataset *data;
    int checked;
} refold;

/* Gradients of the step's four micro-batches of one sequence, folded in the given order. */
static uint64_t fold_again(oct_build *build, oct_dataset *data, int64_t first, int64_t stride)
{
    int32_t ids[SEQ], targets[SEQ];
    oct_err err = {0};
    const oct_run run = oct_build_run(build, true);
    oct_optimizer_zero_grad(build->optimizer);
    for (int64_t m = first; m >= 0 && m < 4; m += stride) {
        double loss = 0.0;
        const oct_batch batch = {.ids = ids, .targets = targets, .batch = 1, .seq = SEQ};
        if (oct_dataset_fill(data, m, ids, targets, &err) != OCT_OK ||
            oct_dsv3_forward_backward(build->model, &run, &batch, 1.0f / (4 * SEQ), false, &loss,
                                      &err) != OCT_OK)
            fail_msg("%s", err.msg);
        oct_build_settle(build);
        for (int64_t p = 0; p < build->tree.param_count; p++)
            build->tree.params[p]->grad_started = true;
    }
    return hash_gradients(build);
}

static void check_order(record *r, oct_build *build)
{
    refold *again = r->arg;
    if (r->attempts > 0)
        return;
    const uint64_t found = hash_gradients(build);
    assert_true(fold_again(build, again->data, 3, -1) != found);
    assert_true(fold_again(build, again->data, 0, 1) == found);
    again->checked++;
}

/* FP32 addition is not associative: the micro-batches of a step are samples 0, 1, 2, 3
 * of it, added in this order. */
static void train__micro_batches__are_added_in_the_order_of_the_samples(void **state)
{
    (void)state;
    const char *const path = word("%s/text.txt", files.path);
    for (int format = 0; format < FORMATS; format++) {
        refold again = {0};
        record *r = record_create();
        const oct_dataset_spec spec = {.paths = &path,
                                       .path_count = 1,
                                       .tokenizer = "bytes",
                                       .seq_length = SEQ,
                                       .vocab_size = 257,
                                       .seed = 2026,
                                       .shuffle = true};
        assert_int_equal(oct_dataset_open(&spec, &again.data, &r->err), OCT_OK);
        r->gradients = check_order;
        r->arg = &again;
        train(&files, word("order-%d", format), format, NULL,
              WORDS("training.micro_batch_size=1", "training.stop_at_step=1"), r);
        assert_trained(r);
        assert_int_equal(again.checked, 1);
        oct_dataset_close(again.data);
        free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__four_identical_micro_batches__give_the_gradient_of_one),
        cmocka_unit_test(train__first_step__gradient_is_that_of_the_mean_loss),
        cmocka_unit_test(train__micro_batches__are_added_in_the_order_of_the_samples),
        cmocka_unit_test(train__8_sequences_split_in_any_way__same_loss_and_gradient),
    };
    return cmocka_run_group_tests(tests, make_files, remove_train_files);
}
