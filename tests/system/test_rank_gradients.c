/* What the ranks fold together: the same micro-batch four times, replicated parameters counted
 * once, and any split of a batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "team_fixture.h"

enum { SEQ = 16, PERIODS = 40 };

/* repeated.txt: every sample of 16 tokens but the last is the same. */
static int make_files(void **state)
{
    (void)make_team_files(state);
    char text[SEQ * PERIODS + 1];
    for (int i = 0; i < PERIODS; i++)
        memcpy(text + i * SEQ, "sixteen letters\n", SEQ);
    temp_dir_write_bytes(&files, "repeated.txt", text, SEQ * PERIODS);
    return 0;
}

/* Gradients of the first step, parameter by parameter. */
static void keep_gradients(record *r, oct_build *build)
{
    if (r->attempts > 0)
        return;
    parts_clear(r->arg);
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        const oct_param *param = build->tree.params[p];
        parts_add(r->arg, param->grad, (size_t)oct_param_own_numel(param) * sizeof(float),
                  param->replicated);
    }
}

static void count_refreshes(record *r, oct_build *build)
{
    (void)r;
    for (int64_t w = 0; w < build->weights.count; w++)
        assert_int_equal(build->weights.shards[w]->refresh_count, 1 + build->optimizer->step);
}

/* How many parameters are replicated, on rank 0. */
static int replicated_params;

static team *run(const char *dir, int format, int ranks, const char *const *words)
{
    team *t = team_create(ranks, 0);
    for (int r = 0; r < ranks; r++) {
        t->of[r]->gradients = keep_gradients;
        t->of[r]->stepped = count_refreshes;
        t->of[r]->arg = &t->state[r];
    }
    train_team(&files, dir, format, NULL, words, t);
    assert_team_trained(t);
    replicated_params = 0;
    for (int i = 0; i < t->state[0].count; i++)
        replicated_params += t->state[0].of[i].whole;
    return t;
}

/* The whole gradient of parameter i, put together; the caller frees. */
static float *gradient_of(const team *t, int i, int64_t *numel)
{
    size_t bytes = 0;
    for (int r = 0; r < t->ranks; r++)
        bytes += r == 0 || !t->state[r].of[i].whole ? t->state[r].of[i].bytes : 0;
    unsigned char *all = malloc(bytes + 1);
    assert_non_null(all);
    *numel = (int64_t)(bytes / sizeof(float));
    bytes = 0;
    for (int r = 0; r < t->ranks; r++) {
        const part *own = &t->state[r].of[i];
        if (r > 0 && own->whole) {
            assert_memory_equal(own->data, t->state[0].of[i].data, own->bytes);
            continue;
        }
        memcpy(all + bytes, own->data, own->bytes);
        bytes += own->bytes;
    }
    return (float *)(void *)all;
}

/* --- FR-14 ------------------------------------------------------------------------------------ */

/* A quarter is exact in every format: the sum of four is known to the bit. */
static void assert_four_quarters(const team *four, const team *one)
{
    for (int i = 0; i < one->state[0].count; i++) {
        int64_t count = 0, numel = 0;
        float *whole = gradient_of(one, i, &count), *folded = gradient_of(four, i, &numel);
        assert_int_equal(numel, count);
        for (int64_t e = 0; e < numel; e++) {
            const float q = 0.25f * whole[e];
            float sum = q + q;
            sum += q;
            sum += q;
            if (memcmp(&sum, &folded[e], sizeof sum) != 0)
                fail_msg("parameter %d, element %lld is %a, required %a", i, (long long)e,
                         (double)folded[e], (double)sum);
        }
        free(whole);
        free(folded);
    }
}

static void train__the_same_micro_batch_on_all_ranks__gradient_of_one(void **state)
{
    (void)state;
    const char *recompute[] = {"gradient_checkpointing.activation_checkpoint=off",
                               "gradient_checkpointing.activation_checkpoint=full"};
    const char *reshard[] = {"fsdp_config.reshard_after_forward=true",
                             "fsdp_config.reshard_after_forward=false"};
    char data[400], dir[40];
    (void)snprintf(data, sizeof data, "dataset.path=%s/repeated.txt", files.path);
    for (int format = 0; format < FORMATS; format++) {
        (void)snprintf(dir, sizeof dir, "single-%d", format);
        team *one = run(dir, format, 1,
                        WORDS(data, "training.seq_length=16", "dataset.shuffle=false",
                              "training.stop_at_step=2", "training.micro_batch_size=1",
                              "training.global_batch_size=1"));
        for (int i = 0; i < 4; i++) {
            const int ranks = i < 2 ? 2 : 4;
            (void)snprintf(dir, sizeof dir, "four-%d-%d", format, i);
            team *four =
                run(dir, format, ranks,
                    WORDS(data, "training.seq_length=16", "dataset.shuffle=false",
                          "training.stop_at_step=2", "training.micro_batch_size=1",
                          "training.global_batch_size=4", recompute[i % 2], reshard[i / 2]));
            assert_same_double(four->of[0]->rows[0].loss, one->of[0]->rows[0].loss);
            assert_four_quarters(four, one);
            for (int row = 0; row < 2; row++)
                assert_int_equal(four->of[0]->rows[row].refreshed_weights,
                                 one->of[0]->rows[row].refreshed_weights);
            team_free(four);
        }
        team_free(one);
    }
}

/* --- FR-21 ------------------------------------------------------------------------------------ */

static void train__replicated_parameters__norm_counts_them_once(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 4};
    team *reference = NULL;
    for (int i = 0; i < 4; i++) {
        char dir[40];
        (void)snprintf(dir, sizeof dir, "even-%d", ranks[i]);
        team *t = run(dir, 1, ranks[i],
                      WORDS("training.seq_length=16", "training.micro_batch_size=1",
                            "training.global_batch_size=12", "training.stop_at_step=2",
                            "training.max_grad_norm=0.5", "fsdp_config.shard=even",
                            "fsdp_config.fallback_to_unsharded=true"));
        if (ranks[i] == 3) /* and some are not */
            assert_true(replicated_params > 0 && replicated_params < t->state[0].count);
        if (!reference) {
            reference = t;
            continue;
        }
        for (int row = 0; row < 2; row++)
            assert_same_row(&t->of[0]->rows[row], &reference->of[0]->rows[row]);
        team_free(t);
    }
    team_free(reference);
}

/* --- FR-22 ------------------------------------------------------------------------------------ */

static team *split(int ranks, int micro)
{
    char dir[40], size[60];
    (void)snprintf(dir, sizeof dir, "split-%d-%d", ranks, micro);
    (void)snprintf(size, sizeof size, "training.micro_batch_size=%d", micro);
    return run(dir, 0, ranks,
               WORDS("model.torch_dtype=float32", "training.seq_length=16",
                     "training.stop_at_step=1", "training.global_batch_size=8", size));
}

static void assert_close(const team *a, const team *b)
{
    assert_true(fabs(a->of[0]->rows[0].loss - b->of[0]->rows[0].loss) <
                1e-6 * b->of[0]->rows[0].loss);
    for (int i = 0; i < a->state[0].count; i++) {
        int64_t numel = 0;
        float *x = gradient_of(a, i, &numel), *y = gradient_of(b, i, &numel);
        double largest = 0.0, apart = 0.0;
        for (int64_t e = 0; e < numel; e++) {
            largest = fmax(largest, fabs((double)y[e]));
            apart = fmax(apart, fabs((double)x[e] - (double)y[e]));
        }
        if (!(apart <= 1e-6 * largest))
            fail_msg("parameter %d: %g apart, largest %g", i, apart, largest);
        free(x);
        free(y);
    }
}

static void train__8_sequences_in_any_split_on_ranks__same_gradient(void **state)
{
    (void)state;
    team *whole = split(1, 8);
    for (int micro = 4; micro >= 1; micro /= 2) {
        team *one = split(1, micro);
        assert_close(one, whole);
        for (int ranks = 2; ranks * micro <= 8; ranks *= 2) {
            team *t = split(ranks, micro);
            assert_same_row(&t->of[0]->rows[0], &one->of[0]->rows[0]);
            assert_true(team_hash_of(t, 0, t->state[0].count) ==
                        team_hash_of(one, 0, one->state[0].count));
            team_free(t);
        }
        team_free(one);
    }
    team_free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__the_same_micro_batch_on_all_ranks__gradient_of_one),
        cmocka_unit_test(train__replicated_parameters__norm_counts_them_once),
        cmocka_unit_test(train__8_sequences_in_any_split_on_ranks__same_gradient),
    };
    return cmocka_run_group_tests(tests, make_files, remove_train_files);
}
