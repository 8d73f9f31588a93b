/* What one step does to the weights, recomputed here; what validation and a start from old weights
 * do to a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train_fixture.h"

static int make_files(void **state)
{
    (void)state;
    files = train_files_create();
    write_text(&files, "other.txt", 3000);
    return 0;
}

/* --- rates ------------------------------------------------------------------------------------ */

/* Masters before the first step. */
typedef struct before {
    float *masters[64];
    int64_t checked;
} before;

static void copy_masters(record *r, oct_build *build)
{
    before *b = r->arg;
    assert_true(build->optimizer->slot_count <= 64);
    for (int64_t s = 0; s < build->optimizer->slot_count && r->attempts == 0; s++) {
        const oct_optim_slot *slot = &build->optimizer->slots[s];
        const size_t bytes = (size_t)slot->numel * sizeof(float);
        b->masters[s] = malloc(bytes);
        assert_non_null(b->masters[s]);
        memcpy(b->masters[s], slot->master, bytes);
    }
}

/* With empty moments AdamW moves every weight by lr g / (|g| + eps) and shrinks it by lr wd. */
static void check_first_update(record *r, oct_build *build)
{
    enum { WARMUP = 2 };
    before *b = r->arg;
    if (r->attempts != 1)
        return;
    const double lr = 1e-3 / WARMUP, clip = fmin(1.0, 1.0 / (r->rows[0].grad_norm + 1e-6));
    for (int64_t s = 0; s < build->optimizer->slot_count; s++) {
        const oct_optim_slot *slot = &build->optimizer->slots[s];
        for (int64_t i = 0; i < slot->numel; i++) {
            const double g = (double)slot->param->grad[i] * clip, w = (double)b->masters[s][i];
            const double wanted = w * (1.0 - lr * 0.1) - lr * g / (fabs(g) + 1e-8);
            if (!(fabs((double)slot->master[i] - wanted) < 2e-7 * fabs(w) + 1e-5 * lr))
                fail_msg("element %lld of %s is %g, required %g", (long long)i, slot->param->fqn,
                         (double)slot->master[i], wanted);
            b->checked++;
        }
        free(b->masters[s]);
    }
}

static void train__first_step__moves_weights_by_the_rate_of_step_0(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        before b = {0};
        record *r = record_create();
        r->gradients = copy_masters;
        r->stepped = check_first_update;
        r->arg = &b;
        train(&files, word("first-%d", format), format, NULL,
              WORDS("training.stop_at_step=4", "lr_scheduler.decay_type=constant",
                    "optimizer.weight_decay=0.1", "optimizer.eps=1.0e-8",
                    "training.max_grad_norm=1.0"),
              r);
        assert_trained(r);
        assert_true(b.checked > 50000);
        const double rates[] = {0.5e-3, 1e-3, 1e-3, 1e-3};
        for (int i = 0; i < 4; i++)
            assert_same_double(r->rows[i].lr, rates[i]);
        assert_int_equal(r->result.state.tokens, 4 * 4 * 32);
        assert_int_equal(r->result.state.samples, 4 * 4);
        free(r);
    }
}

/* --- validation ------------------------------------------------------------------------------- */

/* Every validation reads the same samples, and training goes on as if there were none. */
static void train__validation__reads_the_same_samples_and_changes_nothing(void **state)
{
    (void)state;
    record *with = record_create(), *without = record_create();
    /* A rate below half a unit in the last place of every weight: all steps have one model. */
    const char *still = "optimizer.lr=1.0e-30";
    const char *data = word("dataset.validation.path=%s/other.txt", files.path);
    train(&files, "without", 1, NULL, WORDS(still), without);
    train(&files, "with", 1, NULL,
          WORDS(still, data, "dataset.validation.every=2", "dataset.validation.steps=3"), with);
    assert_trained(without);
    assert_trained(with);
    assert_int_equal(with->row_count, 9); /* after steps 2, 4 and 6 */
    assert_true(with->masters[5] == with->masters[0]);
    int train_rows = 0, validations = 0;
    for (int i = 0; i < with->row_count; i++) {
        const oct_step_metrics *row = &with->rows[i];
        if (!row->validation) {
            assert_same_row(row, &without->rows[train_rows++]);
            continue;
        }
        assert_int_equal(i % 3, 2);
        assert_int_equal(row->tokens, 3 * 4 * 32);
        assert_same_double(row->loss, with->rows[2].loss);
        validations++;
    }
    assert_int_equal(validations, 3);
    assert_true(with->rows[2].loss != with->rows[1].loss);
    free(with);
    free(without);
}

/* --- a start from old weights ----------------------------------------------------------------- */

/* The step number of the old run says nothing about what the new one has saved. */
static void train__weights_only_up_to_the_step_of_the_old_run__is_saved(void **state)
{
    (void)state;
    record *r = record_create();
    train(&files, "old", 0, NULL, WORDS("training.stop_at_step=2"), r);
    assert_trained(r);
    const char *from = word("checkpoint.restore_from=%s/old/checkpoints/step-2", files.path);
    train(&files, "new", 0, NULL,
          WORDS(from, "checkpoint.restore_optimizer=false", "training.stop_at_step=2"), r);
    assert_trained(r);
    assert_int_equal(r->row_count, 2);
    assert_int_equal(r->saves, 1);
    assert_int_equal(r->saved_step, 2);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__first_step__moves_weights_by_the_rate_of_step_0),
        cmocka_unit_test(train__validation__reads_the_same_samples_and_changes_nothing),
        cmocka_unit_test(train__weights_only_up_to_the_step_of_the_old_run__is_saved),
    };
    return cmocka_run_group_tests(tests, make_files, remove_train_files);
}
