/* Quantized weights: physical tensors, refresh, selection, shards, panels. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "low_precision/functional/linear.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/hif8.h"
#include "unit/low_precision_fixture.h"

#include "unit/fake_format.h"

static const int64_t dense_shape[] = {70, 40}, expert_shape[] = {3, 70, 40};

static void expect_tensor(const oct_weight_storage *w, int i, const char *name, oct_dtype dtype,
                          int ndim, const int64_t *shape)
{
    const oct_physical_tensor *t = &w->tensors[i];
    assert_string_equal(t->name, name);
    assert_int_equal(t->tensor.dtype, dtype);
    assert_int_equal(t->tensor.ndim, ndim);
    for (int d = 0; d < ndim; d++)
        assert_int_equal(t->tensor.shape[d], shape[d]);
    assert_non_null(t->tensor.data);
}

static void create__mxfp8__four_tensors(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    const oct_low_precision_policy policy = oct_low_precision_policy_of(oct_mxfp8_format.recipe);
    oct_weight_storage *w = weight_of(b, &policy, "w", 2, dense_shape, NULL);
    assert_int_equal(w->tensor_count, 4);
    expect_tensor(w, 0, "row_data", OCT_DTYPE_E4M3, 2, dense_shape);
    expect_tensor(w, 1, "row_scale", OCT_DTYPE_E8M0, 3, (int64_t[]){70, 1, 2});
    expect_tensor(w, 2, "col_data", OCT_DTYPE_E4M3, 2, dense_shape);
    expect_tensor(w, 3, "col_scale", OCT_DTYPE_E8M0, 3, (int64_t[]){2, 40, 2});
    assert_int_equal(oct_weight_bytes(w->format, 2, dense_shape), 2 * 2800 + 140 + 160);
    weight_free(w);

    /* Stacked [E, out, in] is seen as [E, in, out]: blocks along `in` are col. */
    w = weight_of(b, &policy, "w", 3, expert_shape, NULL);
    expect_tensor(w, 0, "col_data", OCT_DTYPE_E4M3, 3, expert_shape);
    expect_tensor(w, 1, "col_scale", OCT_DTYPE_E8M0, 4, (int64_t[]){3, 70, 1, 2});
    expect_tensor(w, 2, "row_data", OCT_DTYPE_E4M3, 3, expert_shape);
    expect_tensor(w, 3, "row_scale", OCT_DTYPE_E8M0, 4, (int64_t[]){3, 2, 40, 2});
    assert_int_equal(w->ndim, 3);
    assert_int_equal(w->logical_dtype, OCT_DTYPE_F32);
    assert_true(w->requires_grad);
    weight_free(w);
    bench_free(b);
}

static void create__hif8__data_and_scale(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    const oct_low_precision_policy policy = oct_low_precision_policy_of(oct_hif8_format.recipe);
    oct_weight_storage *w = weight_of(b, &policy, "w", 2, dense_shape, NULL);
    assert_int_equal(w->tensor_count, 2);
    expect_tensor(w, 0, "data", OCT_DTYPE_HIF8, 2, dense_shape);
    expect_tensor(w, 1, "scale", OCT_DTYPE_F32, 0, NULL);
    weight_free(w);
    w = weight_of(b, &policy, "w", 3, expert_shape, NULL);
    expect_tensor(w, 0, "data", OCT_DTYPE_HIF8, 3, expert_shape);
    expect_tensor(w, 1, "scale", OCT_DTYPE_F32, 1, (int64_t[]){3});
    weight_free(w);
    bench_free(b);
}

static void create__policy_off_or_vector__refused(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    static char fqn[] = "norm.weight";
    const oct_low_precision_policy off = {0};
    const oct_low_precision_policy on = oct_low_precision_policy_of(oct_hif8_format.recipe);
    const oct_param vector = {.fqn = fqn, .ndim = 1, .shape = {8}};
    oct_weight_storage *w = NULL;
    assert_fails(b, oct_weight_create(&b->persist, &off, &vector, OCT_DTYPE_F32, &w, &b->err),
                 OCT_E_API, "norm.weight");
    assert_fails(b, oct_weight_create(&b->persist, &on, &vector, OCT_DTYPE_F32, &w, &b->err),
                 OCT_E_SHAPE, "norm.weight");
    bench_free(b);
}

static void select__before_the_first_refresh__refused(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    const oct_low_precision_policy policy = oct_low_precision_policy_of(oct_hif8_format.recipe);
    oct_weight_storage *w = weight_of(b, &policy, "lin.weight", 2, dense_shape, NULL);
    oct_operand op;
    assert_fails(b, oct_weight_select(w, OCT_ORIENTATION_ROW, &op, &b->err), OCT_E_API,
                 "'lin.weight'");
    weight_free(w);
    bench_free(b);
}

static void select__both_orientations__pointers_into_the_storage(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    oct_tensor master = tensor_f32(b, 210, 40);
    fill_f32(master.data, 8400, 1);
    for (int ndim = 2; ndim <= 3; ndim++) {
        const int64_t *shape = ndim == 2 ? dense_shape : expert_shape;
        const oct_low_precision_policy mx = oct_low_precision_policy_of(oct_mxfp8_format.recipe);
        oct_weight_storage *w = weight_of(b, &mx, "w", ndim, shape, master.data);
        oct_operand row, col;
        assert_ok(b, oct_weight_select(w, OCT_ORIENTATION_ROW, &row, &b->err));
        assert_ok(b, oct_weight_select(w, OCT_ORIENTATION_COL, &col, &b->err));
        const int row_at = ndim == 2 ? 0 : 2;
        assert_ptr_equal(row.data.data, w->tensors[row_at].tensor.data);
        assert_ptr_equal(row.scales.data, w->tensors[row_at + 1].tensor.data);
        assert_ptr_equal(col.data.data, w->tensors[2 - row_at].tensor.data);
        assert_ptr_not_equal(row.data.data, col.data.data);
        assert_int_equal(row.transposed, ndim == 3);
        weight_free(w);

        const oct_low_precision_policy hif8 = oct_low_precision_policy_of(oct_hif8_format.recipe);
        w = weight_of(b, &hif8, "w", ndim, shape, master.data);
        assert_ok(b, oct_weight_select(w, OCT_ORIENTATION_ROW, &row, &b->err));
        assert_ok(b, oct_weight_select(w, OCT_ORIENTATION_COL, &col, &b->err));
        assert_ptr_equal(row.data.data, col.data.data);
        assert_ptr_equal(row.scales.data, col.scales.data);
        assert_int_equal(oct_operand_k_contiguous(&row), ndim == 2);
        assert_int_equal(oct_operand_k_contiguous(&col), ndim == 3);
        assert_int_equal(w->refresh_count, 1); /* selecting requantizes nothing */
        weight_free(w);
    }
    bench_free(b);
}

/* Element (r, c) of expert e of a weight, from one orientation. */
static double stored(const oct_weight_storage *w, oct_orientation orientation, int64_t e, int64_t r,
                     int64_t c)
{
    oct_operand op;
    assert_int_equal(oct_weight_select(w, orientation, &op, NULL), OCT_OK);
    const int64_t rows = w->shape[w->ndim - 2], cols = w->shape[w->ndim - 1];
    const uint8_t code = ((const uint8_t *)op.data.data)[(e * rows + r) * cols + c];
    if (op.data.dtype == OCT_DTYPE_HIF8)
        return (double)oct_hif8_decode(code) * (double)f32(&op.scales)[e];
    const uint8_t *scales = op.scales.data;
    const int64_t pairs = oct_operand_k_contiguous(&op) ? (cols + 63) / 64 : (rows + 63) / 64;
    const int byte = oct_operand_k_contiguous(&op)
                         ? scales[((e * rows + r) * pairs + c / 64) * 2 + c % 64 / 32]
                         : scales[((e * pairs + r / 64) * cols + c) * 2 + r % 64 / 32];
    return ldexp((double)oct_e4m3_decode(code), byte - 127);
}

static void refresh__both_orientations__close_to_the_master(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    oct_tensor master = tensor_f32(b, 210, 40);
    fill_f32(master.data, 8400, 2);
    for (int64_t i = 2800; i < 5600; i++)
        f32(&master)[i] *= 0x1p-20f; /* an expert that a neighbour's scale would flush to zero */
    oct_tensor before = tensor_f32(b, 210, 40);
    memcpy(before.data, master.data, oct_tensor_bytes(&master));
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        const oct_low_precision_policy policy =
            oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe);
        oct_weight_storage *w = weight_of(b, &policy, "w", 3, expert_shape, master.data);
        assert_memory_equal(before.data, master.data, oct_tensor_bytes(&master)); /* read only */
        for (int64_t e = 0; e < 3; e++)
            for (int64_t i = 0; i < 2800; i++) {
                const double x = (double)f32(&master)[e * 2800 + i];
                const double largest = e == 1 ? 0x1p-20 : 1.0;
                const double bound = fmax(fabs(x) / 8, largest * 0x1p-9);
                for (int o = 0; o < 2; o++)
                    assert_true(fabs(stored(w, (oct_orientation)o, e, i / 40, i % 40) - x) <=
                                bound);
            }
        weight_free(w);
    }
    bench_free(b);
}

/* Quantizing from the master and from its BF16 rounding gives other codes: the master is meant. */
static void refresh__fp32_master__never_by_way_of_bf16(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    const int64_t shape[] = {1, 32};
    oct_tensor master = tensor_f32(b, 1, 32);
    f32(&master)[0] = 448.0f;
    f32(&master)[1] = 17.0001f; /* over the tie of 16 and 18; in BF16 it is the tie: 16 */
    f32(&master)[2] = 1.0f;
    assert_float_equal(oct_bf16_round(17.0001f), 17.0f, 0.0f);
    const oct_low_precision_policy mx = oct_low_precision_policy_of(oct_mxfp8_format.recipe);
    oct_weight_storage *w = weight_of(b, &mx, "w", 2, shape, master.data);
    assert_float_equal((float)stored(w, OCT_ORIENTATION_ROW, 0, 0, 1), 18.0f, 0.0f);
    weight_free(w);

    /* HiF8: the amax keeps its FP32 bits. */
    const oct_low_precision_policy hif8 = oct_low_precision_policy_of(oct_hif8_format.recipe);
    f32(&master)[0] = 15.0001f; /* the largest is now element 1 */
    w = weight_of(b, &hif8, "w", 2, shape, master.data);
    assert_float_equal(*f32(&w->tensors[1].tensor), 17.0001f / 15.0f, 0.0f);
    assert_float_equal(*w->amax, 17.0001f, 0.0f);
    weight_free(w);
    bench_free(b);
}

static void refresh__hif8_experts__one_scale_each_in_expert_order(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    const int64_t shape[] = {4, 2, 3};
    oct_tensor master = tensor_f32(b, 8, 3);
    f32(&master)[0] = 15.0f;
    f32(&master)[6 + 5] = -30.0f;
    f32(&master)[12 + 2] = 3.75f; /* expert 3 stays zero */
    const oct_low_precision_policy policy = oct_low_precision_policy_of(oct_hif8_format.recipe);
    oct_weight_storage *w = weight_of(b, &policy, "w", 3, shape, master.data);
    const float scales[] = {1.0f, 2.0f, 0.25f, 1.0f};
    assert_memory_equal(w->tensors[1].tensor.data, scales, sizeof scales);
    assert_int_equal(oct_weight_shared_amax_count(w), 0);
    weight_free(w);
    bench_free(b);
}

static void refresh__hif8_dense_shards_with_reduced_amax__same_codes_as_whole(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    oct_tensor master = tensor_f32(b, 70, 40);
    fill_f32(master.data, 2800, 3);
    f32(&master)[2799] = 100.0f; /* an outlier in the second shard only */
    const oct_low_precision_policy policy = oct_low_precision_policy_of(oct_hif8_format.recipe);
    oct_weight_storage *whole = weight_of(b, &policy, "w", 2, dense_shape, master.data);
    const int64_t shapes[2][2] = {{64, 40}, {6, 40}};
    oct_weight_storage *shard[2];
    float amax[2];
    for (int r = 0; r < 2; r++) {
        shard[r] = weight_of(b, &policy, "w", 2, shapes[r], NULL);
        assert_int_equal(oct_weight_shared_amax_count(shard[r]), 1);
        assert_ok(b, oct_weight_local_amax(&b->exec, shard[r], f32(&master) + r * 2560, &amax[r],
                                           &b->err));
    }
    assert_true(amax[0] < 1.0f);
    assert_float_equal(amax[1], 100.0f, 0.0f);
    const float reduced = fmaxf(amax[0], amax[1]);
    for (int r = 0; r < 2; r++) {
        assert_ok(b, oct_weight_refresh(&b->exec, &b->trace, shard[r], f32(&master) + r * 2560,
                                        &reduced, &b->err));
        assert_float_equal(*f32(&shard[r]->tensors[1].tensor), 100.0f / 15.0f, 0.0f);
        assert_memory_equal(shard[r]->tensors[0].tensor.data,
                            (const uint8_t *)whole->tensors[0].tensor.data + r * 2560,
                            r == 0 ? 2560 : 240);
        weight_free(shard[r]);
    }
    weight_free(whole);
    bench_free(b);
}

static void local_amax__nan__orders_as_infinity(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    oct_tensor master = tensor_f32(b, 70, 40);
    f32(&master)[7] = NAN;
    const oct_low_precision_policy policy = oct_low_precision_policy_of(oct_hif8_format.recipe);
    oct_weight_storage *w = weight_of(b, &policy, "w", 2, dense_shape, master.data);
    float amax = 0;
    assert_ok(b, oct_weight_local_amax(&b->exec, w, f32(&master), &amax, &b->err));
    assert_true(isinf(amax) != 0);
    assert_float_equal(*f32(&w->tensors[1].tensor), 1.0f, 0.0f);
    weight_free(w);
    bench_free(b);
}

static void refresh__events__one_refresh_and_both_roles(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    oct_tensor master = tensor_f32(b, 70, 40);
    f32(&master)[3] = 30.0f;
    const oct_low_precision_policy policy = oct_low_precision_policy_of(oct_hif8_format.recipe);
    oct_weight_storage *w = weight_of(b, &policy, "a.weight", 2, dense_shape, master.data);
    assert_int_equal(b->event_count, 3);
    assert_int_equal(b->events[0].event.kind, OCT_TRACE_REFRESH);
    assert_string_equal(b->events[0].event.fqn, "a.weight");
    assert_string_equal(b->events[0].event.tensors[0], "data");
    assert_string_equal(b->events[0].event.tensors[1], "scale");
    assert_null(b->events[0].event.tensors[2]);
    assert_string_equal(b->events[1].event.role, "weight_fwd");
    assert_string_equal(b->events[1].event.orientation, "row");
    assert_float_equal(b->events[1].event.scale, 2.0f, 0.0f);
    assert_string_equal(b->events[2].event.role, "weight_bwd");
    assert_string_equal(b->events[2].event.orientation, "col");
    assert_int_equal(w->refresh_count, 1);
    weight_free(w);
    bench_free(b);
}

/* y = x W^T through the weight as it stands. */
static void product(bench *b, oct_weight_storage *w, const oct_tensor *x, oct_tensor *y)
{
    oct_operand saved;
    assert_ok(b, oct_low_precision_linear_forward(&b->run, "m", w, NULL, x, y, &saved, &b->err));
}

static void pack__until_the_next_refresh__once_per_orientation(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
        oct_tensor master = tensor_f32(b, 70, 40), x = tensor_f32(b, 9, 40);
        oct_tensor y1 = tensor_f32(b, 9, 70), y2 = tensor_f32(b, 9, 70), y3 = tensor_f32(b, 9, 70);
        fill_f32(master.data, 2800, 4);
        fill_f32(x.data, 360, 5);
        const oct_low_precision_policy policy =
            oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe);
        oct_weight_storage *w = weight_of(b, &policy, "w", 2, dense_shape, master.data);
        assert_null(w->panels[OCT_ORIENTATION_ROW]);
        product(b, w, &x, &y1);
        const oct_panels **packed = w->panels[OCT_ORIENTATION_ROW];
        const oct_panels *first = packed[0];
        assert_null(w->panels[OCT_ORIENTATION_COL]);
        product(b, w, &x, &y2);
        assert_ptr_equal(w->panels[OCT_ORIENTATION_ROW], packed);
        assert_ptr_equal(w->panels[OCT_ORIENTATION_ROW][0], first);
        assert_memory_equal(y1.data, y2.data, oct_tensor_bytes(&y1));

        /* After a refresh the panels are those of the new weight, in the same memory. */
        const uint64_t heap_calls = w->panel_arena.heap_calls;
        for (int64_t i = 0; i < 2800; i++)
            f32(&master)[i] *= -2.0f;
        assert_ok(b, oct_weight_refresh(&b->exec, NULL, w, f32(&master), NULL, &b->err));
        assert_null(w->panels[OCT_ORIENTATION_ROW]);
        product(b, w, &x, &y3);
        for (int64_t i = 0; i < 630; i++)
            assert_float_equal(f32(&y3)[i], -2.0f * f32(&y1)[i], 0.0f);
        assert_ok(b, oct_weight_pack(&b->exec, w, OCT_ORIENTATION_COL, &b->err));
        assert_int_equal(w->panel_arena.heap_calls, heap_calls);
        weight_free(w);
        bench_free(b);
    }
}

static void use__packs_at_use__same_bits_and_no_panels(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
        oct_tensor master = tensor_f32(b, 70, 40), x = tensor_f32(b, 9, 40);
        oct_tensor y1 = tensor_f32(b, 9, 70), y2 = tensor_f32(b, 9, 70);
        fill_f32(master.data, 2800, 4);
        fill_f32(x.data, 360, 5);
        const oct_low_precision_policy policy =
            oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe);
        oct_weight_storage *w = weight_of(b, &policy, "w", 2, dense_shape, master.data);
        w->packs_at_use = true;
        product(b, w, &x, &y1);
        assert_null(w->panels[OCT_ORIENTATION_ROW]);
        assert_int_equal(w->panel_arena.heap_calls, 0);
        w->packs_at_use = false;
        product(b, w, &x, &y2);
        assert_non_null(w->panels[OCT_ORIENTATION_ROW]);
        assert_memory_equal(y1.data, y2.data, oct_tensor_bytes(&y1));
        weight_free(w);
        bench_free(b);
    }
}

static oct_status failing_refresh(const oct_exec *exec, oct_weight_storage *weight,
                                  const oct_tensor *master, oct_err *err)
{
    (void)exec;
    (void)weight;
    (void)master;
    return OCT_FAIL(err, OCT_E_KERNEL, "injected refresh failure");
}

static void refresh__kernel_fails__error_with_fqn_and_nothing_counted(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    oct_tensor master = tensor_f32(b, 70, 40);
    const oct_low_precision_policy policy = fake_policy(true);
    oct_weight_storage *w = weight_of(b, &policy, "a.weight", 2, dense_shape, master.data);
    assert_int_equal(fake.refreshes, 1);
    b->event_count = 0;
    fake_format.refresh = failing_refresh;
    assert_fails(b, oct_weight_refresh(&b->exec, &b->trace, w, f32(&master), NULL, &b->err),
                 OCT_E_KERNEL, "injected refresh failure");
    assert_non_null(strstr(b->err.msg, "'a.weight'"));
    assert_int_equal(w->refresh_count, 1);
    assert_int_equal(b->event_count, 0);
    weight_free(w);
    bench_free(b);
}

static void refresh__all_zero_weight__finite_scales_and_zero_codes(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++)
        for (int ndim = 2; ndim <= 3; ndim++) {
            bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
            oct_tensor master = tensor_f32(b, 210, 40);
            const oct_low_precision_policy policy =
                oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe);
            oct_weight_storage *w = weight_of(b, &policy, "w", ndim,
                                              ndim == 2 ? dense_shape : expert_shape, master.data);
            for (int64_t e = 0; e < (ndim == 2 ? 1 : 3); e++)
                for (int64_t i = 0; i < 2800; i++)
                    for (int o = 0; o < 2; o++)
                        assert_true(stored(w, (oct_orientation)o, e, i / 40, i % 40) == 0.0);
            if (w->amax)
                for (int64_t e = 0; e < (ndim == 2 ? 1 : 3); e++)
                    assert_float_equal(f32(&w->tensors[1].tensor)[e], 1.0f, 0.0f);
            weight_free(w);
            bench_free(b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create__mxfp8__four_tensors),
        cmocka_unit_test(create__hif8__data_and_scale),
        cmocka_unit_test(create__policy_off_or_vector__refused),
        cmocka_unit_test(select__before_the_first_refresh__refused),
        cmocka_unit_test(select__both_orientations__pointers_into_the_storage),
        cmocka_unit_test(refresh__both_orientations__close_to_the_master),
        cmocka_unit_test(refresh__fp32_master__never_by_way_of_bf16),
        cmocka_unit_test(refresh__hif8_experts__one_scale_each_in_expert_order),
        cmocka_unit_test(refresh__hif8_dense_shards_with_reduced_amax__same_codes_as_whole),
        cmocka_unit_test(local_amax__nan__orders_as_infinity),
        cmocka_unit_test(refresh__events__one_refresh_and_both_roles),
        cmocka_unit_test(pack__until_the_next_refresh__once_per_orientation),
        cmocka_unit_test(use__packs_at_use__same_bits_and_no_panels),
        cmocka_unit_test(refresh__kernel_fails__error_with_fqn_and_nothing_counted),
        cmocka_unit_test(refresh__all_zero_weight__finite_scales_and_zero_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
