/* Masters, gradient norm, clipping, the non-finite policy, compute copies, and the optimizer in a
 * checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/fault.h"
#include "checkpoint/checkpoint.h"
#include "numeric/bf16.h"
#include "unit/optimizer_fixture.h"
#include "unit/scratch_dir.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        const oct_status ok_status_ = (call);                                                      \
        if (ok_status_ != OCT_OK)                                                                  \
            fail_msg("%s", err.msg);                                                               \
    } while (0)

static const oct_adamw_config config = {.lr = 1e-2,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .eps = 1e-8,
                                        .weight_decay = 0.1,
                                        .max_grad_norm = 1.0};

static uint64_t hash_floats(uint64_t hash, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        hash = (hash ^ oct_f32_bits(x[i])) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_state(const oct_optimizer *optimizer)
{
    uint64_t hash = 0xcbf29ce484222325u + (uint64_t)optimizer->step;
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        const oct_optim_slot *slot = &optimizer->slots[i];
        hash = hash_floats(hash, slot->master, slot->numel);
        if (slot->exp_avg) {
            hash = hash_floats(hash, slot->exp_avg, slot->numel);
            hash = hash_floats(hash, slot->exp_avg_sq, slot->numel);
        }
    }
    return hash;
}

static void create__init_values__become_masters_without_copy(void **state)
{
    (void)state;
    oct_err err = {0};
    fixture fix;
    fixture_init(&fix, OCT_ISA_REF, 1, 1);
    float *init[FIX_PARAMS];
    for (int i = 0; i < FIX_PARAMS; i++)
        init[i] = fix.params[i]->init;
    oct_optimizer *optimizer = NULL;
    OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
    assert_int_equal(optimizer->slot_count, FIX_PARAMS);
    for (int i = 0; i < FIX_PARAMS; i++) {
        assert_ptr_equal(optimizer->slots[i].master, init[i]);
        assert_ptr_equal(optimizer->slots[i].param, fix.params[i]);
        assert_null(fix.params[i]->init);
        for (int64_t k = 0; k < optimizer->slots[i].numel; k++)
            assert_true(optimizer->slots[i].exp_avg[k] == 0.0f &&
                        optimizer->slots[i].exp_avg_sq[k] == 0.0f);
    }
    oct_optimizer_destroy(optimizer);
    fixture_release(&fix);
}

static void create__parameter_without_init__named_and_tree_unchanged(void **state)
{
    (void)state;
    oct_err err = {0};
    fixture fix;
    fixture_init(&fix, OCT_ISA_REF, 1, 1);
    free(fix.params[2]->init);
    fix.params[2]->init = NULL;
    oct_optimizer *optimizer = NULL;
    assert_int_equal(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err),
                     OCT_E_API);
    assert_non_null(strstr(err.msg, "'norm.scale'"));
    assert_non_null(fix.params[0]->init);
    fixture_release(&fix);
}

static void grad_norm__against_fp64__and_any_threads(void **state)
{
    (void)state;
    oct_err err = {0};
    double first = 0.0;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        for (int threads = 1; threads <= 5; threads++) {
            fixture fix;
            fixture_init(&fix, (oct_isa)isa, threads, 1);
            oct_optimizer *optimizer = NULL;
            oct_grad_norm norm;
            OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
            OK(oct_optimizer_grad_norm(optimizer, &fix.exec, &norm, &err));
            long double sum = 0.0L;
            for (int i = 0; i < FIX_PARAMS; i++)
                for (int64_t k = 0; k < oct_param_numel(fix.params[i]); k++)
                    sum +=
                        (long double)fix.params[i]->grad[k] * (long double)fix.params[i]->grad[k];
            assert_true(norm.finite);
            assert_null(norm.nonfinite_fqn);
            assert_true(fabs(norm.norm - (double)sqrtl(sum)) <= 1e-13 * norm.norm);
            if (first == 0.0)
                first = norm.norm;
            assert_memory_equal(&first, &norm.norm, sizeof first);
            oct_optimizer_destroy(optimizer);
            fixture_release(&fix);
        }
}

/* The norm is one partial per dim-0 index, ascending: a shard boundary between rows changes
 * nothing, and the order is visible in the bits. */
static void grad_norm__definition__partials_in_order(void **state)
{
    (void)state;
    oct_err err = {0};
    fixture fix;
    fixture_init(&fix, OCT_ISA_REF, 2, 5);
    oct_optimizer *optimizer = NULL;
    oct_grad_norm norm;
    OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
    OK(oct_optimizer_grad_norm(optimizer, &fix.exec, &norm, &err));
    double sum = 0.0;
    for (int i = 0; i < FIX_PARAMS; i++) {
        const oct_param *param = fix.params[i];
        const int64_t width = oct_param_numel(param) / param->shape[0];
        for (int64_t r = 0; r < param->shape[0]; r++)
            sum += oct_sum_squares(&fix.exec, param->grad + r * width, width);
    }
    const double wanted = sqrt(sum);
    assert_memory_equal(&wanted, &norm.norm, sizeof wanted);
    oct_optimizer_destroy(optimizer);
    fixture_release(&fix);
}

static void update__nonfinite_gradient__nothing_changes_and_fqn_named(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const char *const fqns[] = {"proj.weight", "experts.gate_up_proj", "norm.scale"};
    for (int which = 0; which < FIX_PARAMS; which++)
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            oct_err err = {0};
            fixture fix;
            fixture_init(&fix, OCT_ISA_REF, 2, 1);
            oct_optimizer *optimizer = NULL;
            oct_grad_norm norm;
            bool updated = false;
            OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
            OK(oct_optimizer_attach_values(optimizer, &fix.exec, OCT_DTYPE_BF16, &err));
            OK(oct_optimizer_grad_norm(optimizer, &fix.exec, &norm, &err));
            OK(oct_optimizer_update(optimizer, &fix.exec, &norm, 1.0, &updated, &err));
            assert_true(updated);
            const uint64_t before = hash_state(optimizer);
            fix.params[which]->grad[oct_param_numel(fix.params[which]) - 1] = bad[b];
            fix.params[2]->grad[3] = which == 2 ? fix.params[2]->grad[3] : bad[b];
            OK(oct_optimizer_grad_norm(optimizer, &fix.exec, &norm, &err));
            assert_false(norm.finite);
            assert_string_equal(norm.nonfinite_fqn, fqns[which]);
            OK(oct_optimizer_update(optimizer, &fix.exec, &norm, 1.0, &updated, &err));
            assert_false(updated);
            assert_int_equal(optimizer->step, 1);
            assert_true(hash_state(optimizer) == before);
            oct_optimizer_destroy(optimizer);
            fixture_release(&fix);
        }
}

static void clip_factor__limits__as_defined(void **state)
{
    (void)state;
    assert_true(oct_clip_factor(0.0, 1.0) == 1.0f);
    assert_true(oct_clip_factor(0.5, 1.0) == 1.0f);
    assert_true(oct_clip_factor(1e30, 0.0) == 1.0f);
    assert_true(oct_clip_factor(2.0, 1.0) == (float)(1.0 / (2.0 + 1e-6)));
    assert_true(oct_clip_factor(1.0, 1.0) == (float)(1.0 / (1.0 + 1e-6)));
}

static void update__clipped_gradient__same_as_scaled_gradient(void **state)
{
    (void)state;
    oct_err err = {0};
    fixture fix[2];
    oct_optimizer *optimizer[2] = {NULL};
    oct_adamw_config configs[2] = {config, config};
    configs[0].max_grad_norm = 0.125;
    configs[1].max_grad_norm = 0.0;
    float factor = 1.0f;
    for (int i = 0; i < 2; i++) {
        bool updated = false;
        oct_grad_norm norm;
        fixture_init(&fix[i], OCT_ISA_REF, 1, 3);
        OK(oct_optimizer_create(&fix[i].tree, &configs[i], NULL, NULL, &optimizer[i], &err));
        if (i == 1)
            for (int p = 0; p < FIX_PARAMS; p++)
                for (int64_t k = 0; k < oct_param_numel(fix[i].params[p]); k++)
                    fix[i].params[p]->grad[k] *= factor;
        OK(oct_optimizer_grad_norm(optimizer[i], &fix[i].exec, &norm, &err));
        if (i == 0)
            factor = oct_clip_factor(norm.norm, 0.125);
        OK(oct_optimizer_update(optimizer[i], &fix[i].exec, &norm, 1.0, &updated, &err));
    }
    assert_true(factor < 0.1f);
    assert_true(hash_state(optimizer[0]) == hash_state(optimizer[1]));
    for (int i = 0; i < 2; i++) {
        oct_optimizer_destroy(optimizer[i]);
        fixture_release(&fix[i]);
    }
}

/* The same bits on every instruction set and for every number of threads. */
static void update__isa_and_threads__same_bits(void **state)
{
    (void)state;
    oct_err err = {0};
    uint64_t first = 0;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        for (int threads = 1; threads <= 3; threads++) {
            fixture fix;
            fixture_init(&fix, (oct_isa)isa, threads, 8);
            oct_optimizer *optimizer = NULL;
            OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
            for (int t = 0; t < 6; t++) {
                oct_grad_norm norm;
                bool updated = false;
                for (int p = 0; p < FIX_PARAMS; p++)
                    fixture_fill(fix.params[p]->grad, oct_param_numel(fix.params[p]),
                                 (uint32_t)(t * 10 + p));
                OK(oct_optimizer_grad_norm(optimizer, &fix.exec, &norm, &err));
                OK(oct_optimizer_update(optimizer, &fix.exec, &norm, 0.5, &updated, &err));
            }
            assert_int_equal(optimizer->step, 6);
            if (first == 0)
                first = hash_state(optimizer);
            assert_true(hash_state(optimizer) == first);
            oct_optimizer_destroy(optimizer);
            fixture_release(&fix);
        }
}

static void attach_values__bf16_and_f32__rounded_or_aliased(void **state)
{
    (void)state;
    oct_err err = {0};
    for (int f32 = 0; f32 <= 1; f32++) {
        fixture fix;
        fixture_init(&fix, OCT_ISA_REF, 1, 2);
        fix.params[1]->keep_float32 = true;
        oct_optimizer *optimizer = NULL;
        OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
        OK(oct_optimizer_attach_values(optimizer, &fix.exec, f32 ? OCT_DTYPE_F32 : OCT_DTYPE_BF16,
                                       &err));
        for (int i = 0; i < FIX_PARAMS; i++) {
            const oct_optim_slot *slot = &optimizer->slots[i];
            const oct_tensor *value = &fix.params[i]->value;
            assert_int_equal(value->ndim, fix.params[i]->ndim);
            assert_int_equal(value->shape[0], fix.params[i]->shape[0]);
            if (f32 || i == 1) {
                assert_int_equal(value->dtype, OCT_DTYPE_F32);
                assert_ptr_equal(value->data, slot->master);
                continue;
            }
            assert_int_equal(value->dtype, OCT_DTYPE_BF16);
            slot->master[0] = 1.00390625f; /* a tie: to even, 1.0 */
            slot->master[1] = 1.01171875f; /* a tie: to even, 1.015625 */
            OK(oct_optimizer_refresh_values(optimizer, &fix.exec, &err));
            const uint16_t *bits = value->data;
            assert_int_equal(bits[0], 0x3f80);
            assert_int_equal(bits[1], 0x3f82);
            for (int64_t k = 0; k < slot->numel; k++)
                assert_int_equal(bits[k], oct_bf16_from_f32(slot->master[k]));
        }
        oct_optimizer_destroy(optimizer);
        assert_null(fix.params[0]->value.data);
        fixture_release(&fix);
    }
}

static void grad_norm__gradient_missing__named(void **state)
{
    (void)state;
    oct_err err = {0};
    fixture fix;
    fixture_init(&fix, OCT_ISA_REF, 1, 2);
    oct_optimizer *optimizer = NULL;
    oct_grad_norm norm;
    OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
    oct_optimizer_zero_grad(optimizer);
    assert_int_equal(oct_optimizer_grad_norm(optimizer, &fix.exec, &norm, &err), OCT_E_API);
    assert_non_null(strstr(err.msg, "'proj.weight'"));
    oct_optimizer_destroy(optimizer);
    fixture_release(&fix);
}

static void update__frozen_parameter__untouched(void **state)
{
    (void)state;
    oct_err err = {0};
    fixture fix;
    fixture_init(&fix, OCT_ISA_REF, 1, 2);
    fix.params[0]->requires_grad = false;
    free(fix.params[0]->grad);
    fix.params[0]->grad = NULL;
    oct_optimizer *optimizer = NULL;
    oct_grad_norm norm;
    bool updated = false;
    OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
    const uint64_t before = hash_floats(1, optimizer->slots[0].master, optimizer->slots[0].numel);
    const uint64_t other = hash_floats(1, optimizer->slots[1].master, optimizer->slots[1].numel);
    OK(oct_optimizer_grad_norm(optimizer, &fix.exec, &norm, &err));
    OK(oct_optimizer_update(optimizer, &fix.exec, &norm, 1.0, &updated, &err));
    assert_true(updated);
    assert_true(before == hash_floats(1, optimizer->slots[0].master, optimizer->slots[0].numel));
    assert_true(other != hash_floats(1, optimizer->slots[1].master, optimizer->slots[1].numel));
    oct_optimizer_destroy(optimizer);
    fixture_release(&fix);
}

static void update__fault__error_and_step_kept(void **state)
{
    (void)state;
    oct_err err = {0};
    fixture fix;
    fixture_init(&fix, OCT_ISA_REF, 1, 2);
    oct_optimizer *optimizer = NULL;
    oct_grad_norm norm;
    bool updated = true;
    OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
    const uint64_t before = hash_state(optimizer);
    OK(oct_optimizer_grad_norm(optimizer, &fix.exec, &norm, &err));
    OK(oct_fault_arm("optimizer.update", 1, OCT_FAULT_FAIL, &err));
    assert_int_equal(oct_optimizer_update(optimizer, &fix.exec, &norm, 1.0, &updated, &err),
                     OCT_E_KERNEL);
    assert_false(updated);
    assert_true(hash_state(optimizer) == before);
    oct_optimizer_destroy(optimizer);
    fixture_release(&fix);
}

/* --- in a checkpoint ----------------------------------------------------------------------- */

static void train(fixture *fix, oct_optimizer *optimizer, int from, int to)
{
    oct_err err = {0};
    for (int t = from; t < to; t++) {
        oct_grad_norm norm;
        bool updated = false;
        for (int p = 0; p < FIX_PARAMS; p++)
            if (fix->params[p]->grad)
                fixture_fill(fix->params[p]->grad, oct_param_numel(fix->params[p]),
                             (uint32_t)(t * 10 + p));
        OK(oct_optimizer_grad_norm(optimizer, &fix->exec, &norm, &err));
        OK(oct_optimizer_update(optimizer, &fix->exec, &norm, 1.0 / (t + 1), &updated, &err));
    }
}

static void save_optimizer(const oct_optimizer *optimizer, int64_t step)
{
    oct_err err = {0};
    oct_item_list list;
    oct_checkpoint_writer *writer = NULL;
    const oct_checkpoint_options options = {.root = scratch_dir, .chunk_bytes = 1000};
    const oct_checkpoint_meta meta = {0};
    oct_item_list_init(&list);
    OK(oct_item_add_optimizer(&list, optimizer, &err));
    OK(oct_checkpoint_writer_create(&options, &writer, &err));
    OK(oct_checkpoint_save(writer, step, &list, &meta, &err));
    oct_checkpoint_writer_destroy(writer);
    oct_item_list_release(&list);
}

static void restore__after_three_steps__continues_to_the_same_bits(void **state)
{
    (void)state;
    oct_err err = {0};
    assert_int_equal(scratch_clear(), 0);
    fixture fix;
    fixture_init(&fix, OCT_ISA_REF, 1, 4);
    oct_optimizer *optimizer = NULL;
    OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
    train(&fix, optimizer, 0, 3);
    save_optimizer(optimizer, 3);
    const uint64_t saved = hash_state(optimizer);
    train(&fix, optimizer, 3, 7);

    fixture other;
    fixture_init(&other, OCT_ISA_REF, 1, 400);
    oct_optimizer *resumed = NULL;
    oct_checkpoint *cp = NULL;
    OK(oct_optimizer_create(&other.tree, &config, NULL, NULL, &resumed, &err));
    OK(oct_checkpoint_open_latest(NULL, scratch_dir, OCT_VERIFY_CRC, NULL, NULL, &cp, &err));
    OK(oct_checkpoint_restore_optimizer(cp, resumed, true, &err));
    assert_true(hash_state(resumed) == saved);
    assert_int_equal(resumed->step, 3);
    train(&other, resumed, 3, 7);
    assert_true(hash_state(resumed) == hash_state(optimizer));

    OK(oct_checkpoint_restore_optimizer(cp, resumed, false, &err));
    assert_int_equal(resumed->step, 0);
    assert_true(resumed->slots[0].exp_avg[5] == 0.0f);
    oct_checkpoint_close(cp);
    oct_optimizer_destroy(resumed);
    oct_optimizer_destroy(optimizer);
    fixture_release(&other);
    fixture_release(&fix);
}

/* Rows 11.2 to 11.4 and 16.35: what keys exist and of what dtype. */
static void items__keys_and_dtypes__weights_masters_moments_step_only(void **state)
{
    (void)state;
    oct_err err = {0};
    assert_int_equal(scratch_clear(), 0);
    fixture fix;
    fixture_init(&fix, OCT_ISA_REF, 1, 4);
    oct_optimizer *optimizer = NULL;
    OK(oct_optimizer_create(&fix.tree, &config, NULL, NULL, &optimizer, &err));
    save_optimizer(optimizer, 0);
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open_step(NULL, scratch_dir, 0, OCT_VERIFY_CRC, &cp, &err));
    assert_int_equal(oct_checkpoint_entry_count(cp), FIX_PARAMS * 5);
    static const char *const names[] = {"master", "exp_avg", "exp_avg_sq", "step"};
    for (int i = 0; i < FIX_PARAMS; i++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_find(cp, fix.params[i]->fqn);
        assert_non_null(entry);
        assert_string_equal(entry->dtype, "bfloat16");
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            char key[256];
            (void)snprintf(key, sizeof key, "optimizer.state.%s.%s", fix.params[i]->fqn, names[n]);
            entry = oct_checkpoint_find(cp, key);
            assert_non_null(entry);
            assert_string_equal(entry->dtype, "float32");
            assert_int_equal(entry->ndim, n == 3 ? 0 : fix.params[i]->ndim);
        }
    }
    oct_checkpoint_close(cp);
    oct_optimizer_destroy(optimizer);
    fixture_release(&fix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create__init_values__become_masters_without_copy),
        cmocka_unit_test(create__parameter_without_init__named_and_tree_unchanged),
        cmocka_unit_test(grad_norm__against_fp64__and_any_threads),
        cmocka_unit_test(grad_norm__definition__partials_in_order),
        cmocka_unit_test(update__nonfinite_gradient__nothing_changes_and_fqn_named),
        cmocka_unit_test(clip_factor__limits__as_defined),
        cmocka_unit_test(update__clipped_gradient__same_as_scaled_gradient),
        cmocka_unit_test(update__isa_and_threads__same_bits),
        cmocka_unit_test(attach_values__bf16_and_f32__rounded_or_aliased),
        cmocka_unit_test(grad_norm__gradient_missing__named),
        cmocka_unit_test(update__frozen_parameter__untouched),
        cmocka_unit_test(update__fault__error_and_step_kept),
        cmocka_unit_test(restore__after_three_steps__continues_to_the_same_bits),
        cmocka_unit_test(items__keys_and_dtypes__weights_masters_moments_step_only),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
