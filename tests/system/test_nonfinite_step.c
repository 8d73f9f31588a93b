/* A step with a non-finite gradient changes nothing but the place in the data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

#include "base/file.h"
#include "train_fixture.h"

static int disarm(void **state)
{
    (void)state;
    oct_fault_disarm_all();
    return 0;
}

static void arm(int nth)
{
    oct_err err = {0};
    assert_int_equal(oct_fault_arm("trainer.gradient", nth, OCT_FAULT_FAIL, &err), OCT_OK);
}

/* Hashes of everything that a skip must leave alone, after each attempt. */
typedef struct snapshots {
    uint64_t storage[MAX_ROWS], values[MAX_ROWS], buffers[MAX_ROWS];
    int64_t optimizer_step[MAX_ROWS], refreshes[MAX_ROWS];
} snapshots;

static void take_snapshot(record *r, oct_build *build)
{
    snapshots *all = r->arg;
    const int i = r->attempts - 1;
    all->storage[i] = hash_storage(build);
    all->values[i] = all->buffers[i] = hash_start;
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        const oct_tensor *value = &build->tree.params[p]->value;
        if (value->data)
            all->values[i] = hash_bytes(all->values[i], value->data, oct_tensor_bytes(value));
    }
    for (int64_t b = 0; b < build->tree.buffer_count; b++) {
        const oct_buffer *buffer = build->tree.buffers[b];
        all->buffers[i] =
            hash_bytes(all->buffers[i], buffer->data, (size_t)buffer->numel * sizeof(float));
    }
    all->optimizer_step[i] = build->optimizer->step;
    all->refreshes[i] = build->trace.count[OCT_TRACE_REFRESH];
}

static void train__nan_in_one_gradient__skips_the_step_and_nothing_else(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        snapshots all = {0};
        record *r = record_create();
        r->stepped = take_snapshot;
        r->arg = &all;
        arm(3);
        train(&files, word("skip-%d", format), format, NULL, WORDS("moe.bias_update_rate=0.01"), r);
        assert_trained(r);
        assert_int_equal(r->attempts, 7);
        assert_int_equal(r->result.state.step, 6);
        assert_int_equal(r->result.state.samples, 28); /* the skipped batch is not read again */
        assert_int_equal(r->warnings, 1);
        assert_non_null(strstr(r->warning, "model.embed_tokens.weight"));
        /* Rows 1 and 2 stand around the skipped attempt, row 3 after the next good one. */
        assert_true(r->masters[2] == r->masters[1] && r->masters[3] != r->masters[2]);
        assert_true(r->moments[2] == r->moments[1] && r->moments[3] != r->moments[2]);
        assert_true(all.values[2] == all.values[1] && all.values[3] != all.values[2]);
        assert_true(all.buffers[2] == all.buffers[1] && all.buffers[3] != all.buffers[2]);
        assert_true(all.storage[2] == all.storage[1]);
        assert_true(format == 0 || all.storage[3] != all.storage[2]);
        assert_int_equal(all.optimizer_step[2], 2);
        assert_int_equal(all.refreshes[2], all.refreshes[1]);

        const oct_step_metrics *skipped = &r->rows[2], *next = &r->rows[3];
        assert_true(skipped->skipped && !next->skipped);
        assert_int_equal(skipped->attempt, 3);
        assert_int_equal(skipped->step, 2);
        assert_int_equal(skipped->refreshed_weights, 0);
        assert_true(isnan(skipped->grad_norm) && isfinite(skipped->loss));
        assert_int_equal(next->step, 3);
        assert_same_double(next->lr, skipped->lr);
        assert_int_equal(next->refreshed_weights, format ? 16 : 0);
        free(r);
    }
}

/* After a skip, the run is the one that never saw that batch: same weights, next data. */
static void train__resumed_after_a_skip__gives_the_same_bits(void **state)
{
    (void)state;
    record *whole = record_create(), *part = record_create();
    arm(2);
    train(&files, "skip-whole", 1, NULL, NULL, whole);
    assert_trained(whole);
    arm(2);
    train(&files, "skip-parts", 1, NULL, WORDS("training.stop_at_step=3"), part);
    assert_trained(part);
    assert_int_equal(part->attempts, 4);
    train(&files, "skip-parts", 1, NULL, NULL, part);
    assert_trained(part);
    assert_int_equal(part->row_count, 3);
    for (int i = 0; i < 3; i++)
        assert_same_row(&part->rows[i], &whole->rows[4 + i]);
    assert_true(part->masters[2] == whole->masters[6]);
    free(whole);
    free(part);
}

static bool exists(const char *path)
{
    oct_file_info info = {0};
    oct_err err = {0};
    assert_int_equal(oct_file_stat(&oct_file_table_real, path, &info, &err), OCT_OK);
    return info.kind != OCT_FILE_NONE;
}

static void train__too_many_skips_in_a_row__stops_and_saves_nothing(void **state)
{
    (void)state;
    record *r = record_create();
    for (int nth = 3; nth <= 5; nth++)
        arm(nth);
    train(&files, "stop", 1, NULL,
          WORDS("training.max_consecutive_skips=3", "checkpoint.save_steps=2"), r);
    assert_refused(r, OCT_E_NONFINITE, "3 steps in a row", "training.max_consecutive_skips",
                   "model.embed_tokens.weight", NULL);
    assert_int_equal(r->row_count, 5);
    assert_true(r->rows[4].skipped);
    assert_true(exists(word("%s/stop/checkpoints/step-2", files.path)));
    assert_false(exists(word("%s/stop/checkpoints/step-3", files.path)));
    assert_int_equal(r->result.state.step, 2);
    free(r);
}

static void train__skips_with_good_steps_between__go_on(void **state)
{
    (void)state;
    record *r = record_create();
    arm(2);
    arm(3);
    arm(5);
    arm(6);
    train(&files, "between", 2, NULL, WORDS("training.max_consecutive_skips=3"), r);
    assert_trained(r);
    assert_int_equal(r->attempts, 10);
    assert_int_equal(r->result.state.consecutive_skips, 0);
    free(r);
}

static void end_at_first_skip(record *r, oct_build *build)
{
    (void)build;
    if (r->attempts == 3)
        assert_int_equal(raise(SIGTERM), 0);
}

/* A signal between skips saves the place in the data and how many skips there were in a row. */
static void train__ended_and_resumed_between_skips__goes_on_counting(void **state)
{
    (void)state;
    record *r = record_create();
    const char *const *words = WORDS("training.max_consecutive_skips=2");
    arm(3);
    r->stepped = end_at_first_skip;
    train(&files, "count", 1, NULL, words, r);
    assert_trained(r);
    assert_int_equal(r->result.signal, SIGTERM);
    assert_int_equal(r->saved_step, 2);
    r->stepped = NULL;
    oct_fault_disarm_all();
    arm(1);
    train(&files, "count", 1, NULL, words, r);
    assert_refused(r, OCT_E_NONFINITE, "2 steps in a row", NULL);
    assert_int_equal(r->row_count, 1);
    assert_int_equal(r->rows[0].attempt, 4);
    assert_int_equal(r->result.state.samples, 16);
    free(r);
}

/* --- a NaN inside ----------------------------------------------------------------------------- */

/* One element of one parameter, by name. */
typedef struct poison {
    const char *fqn;
    bool in_master; /* else in the compute copy, during the second attempt only */
    unsigned char before[4];
} poison;

static oct_param *param_named(oct_build *build, const char *fqn)
{
    for (int64_t p = 0; p < build->tree.param_count; p++)
        if (strcmp(build->tree.params[p]->fqn, fqn) == 0)
            return build->tree.params[p];
    fail_msg("no parameter '%s'", fqn);
    return NULL;
}

/* Before the update of the first step, whose refresh then quantizes the NaN. */
static void poison_master(record *r, oct_build *build)
{
    const poison *p = r->arg;
    if (!p->in_master || r->attempts != 0)
        return;
    const oct_param *param = param_named(build, p->fqn);
    for (int64_t s = 0; s < build->optimizer->slot_count; s++) {
        const oct_optim_slot *slot = &build->optimizer->slots[s];
        if (slot->param != param)
            continue;
        /* Of stacked experts one element each: which of them get tokens is up to the router. */
        const int64_t stride = slot->numel / (param->ndim == 3 ? param->shape[0] : 1);
        for (int64_t i = 5; i < slot->numel; i += stride)
            slot->master[i] = NAN;
    }
}

/* A skip leaves values alone: what was put in for the second attempt is taken out after it. */
static void poison_value(record *r, oct_build *build)
{
    static const unsigned char nan_bf16[2] = {0xC0, 0x7F};
    poison *p = r->arg;
    if (p->in_master || r->attempts > 2)
        return;
    const oct_param *param = param_named(build, p->fqn);
    assert_int_equal(param->value.dtype, OCT_DTYPE_BF16);
    unsigned char *element = param->value.data;
    if (r->attempts == 1)
        memcpy(p->before, element, sizeof nan_bf16);
    memcpy(element, r->attempts == 1 ? nan_bf16 : p->before, sizeof nan_bf16);
}

/* The weight of a linear or of experts. It stays NaN: each further step is skipped, to the end. */
static void train__nan_in_a_weight__reaches_the_loss_and_stops(void **state)
{
    (void)state;
    static const char *const weights[] = {
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.mlp.experts.gate_up_proj",
        "model.layers.1.mlp.shared_experts.up_proj.weight",
    };
    for (int format = 0; format < FORMATS; format++)
        for (int w = 0; w < 4; w++) {
            poison p = {.fqn = weights[w], .in_master = true};
            record *r = record_create();
            r->gradients = poison_master;
            r->arg = &p;
            train(&files, word("weight-%d-%d", format, w), format, NULL,
                  WORDS("training.max_consecutive_skips=2"), r);
            assert_refused(r, OCT_E_NONFINITE, "2 steps in a row", NULL);
            assert_int_equal(r->row_count, 3);
            assert_true(isfinite(r->rows[0].loss));
            for (int i = 1; i < 3; i++) {
                assert_true(isnan(r->rows[i].loss) && isnan(r->rows[i].grad_norm));
                assert_true(r->rows[i].skipped);
            }
            assert_int_equal(r->result.state.step, 1);
            assert_int_equal(r->saves, 0);
            free(r);
        }
}

/* One activation of every token, after the norm: it enters the linear layers and nothing else, as
 * the residual goes around them. The skipped attempt leaves no trace but its batch. */
static void train__nan_in_an_activation__reaches_the_loss_and_is_skipped(void **state)
{
    (void)state;
    static const char *const norms[] = {
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.1.self_attn.kv_a_layernorm.weight",
    };
    for (int format = 0; format < FORMATS; format++) {
        record *required = record_create();
        arm(2);
        train(&files, word("armed-%d", format), format, NULL, NULL, required);
        assert_trained(required);
        oct_fault_disarm_all();
        for (int n = 0; n < 3; n++) {
            poison p = {.fqn = norms[n]};
            record *r = record_create();
            r->stepped = poison_value;
            r->arg = &p;
            train(&files, word("activation-%d-%d", format, n), format, NULL, NULL, r);
            assert_trained(r);
            assert_int_equal(r->attempts, 7);
            assert_true(isnan(r->rows[1].loss) && r->rows[1].skipped);
            for (int i = 0; i < 7; i++) {
                assert_int_equal(r->masters[i], required->masters[i]);
                assert_int_equal(r->moments[i], required->moments[i]);
                assert_true(i == 1 || isfinite(r->rows[i].loss));
            }
            free(r);
        }
        free(required);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(train__nan_in_one_gradient__skips_the_step_and_nothing_else,
                                  disarm),
        cmocka_unit_test_teardown(train__resumed_after_a_skip__gives_the_same_bits, disarm),
        cmocka_unit_test_teardown(train__too_many_skips_in_a_row__stops_and_saves_nothing, disarm),
        cmocka_unit_test_teardown(train__skips_with_good_steps_between__go_on, disarm),
        cmocka_unit_test_teardown(train__ended_and_resumed_between_skips__goes_on_counting, disarm),
        cmocka_unit_test(train__nan_in_a_weight__reaches_the_loss_and_stops),
        cmocka_unit_test_teardown(train__nan_in_an_activation__reaches_the_loss_and_is_skipped,
                                  disarm),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
