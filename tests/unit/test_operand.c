/* Operands and the checks at the entry of the products. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "low_precision/hif8/hif8.h"
#include "low_precision/matmul.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "low_precision/quantizer.h"
#include "numeric/e4m3.h"
#include "numeric/hif8.h"
#include "unit/low_precision_fixture.h"

static void operand_view__stored_and_transposed__gemm_dims(void **state)
{
    (void)state;
    oct_operand stacked = {.transposed = true, .data = {.ndim = 3, .shape = {5, 7, 9}}};
    int64_t view[3];
    assert_int_equal(oct_operand_view(&stacked, view), 3);
    assert_int_equal(view[0], 5);
    assert_int_equal(view[1], 9);              /* in */
    assert_int_equal(view[2], 7);              /* out */
    stacked.orientation = OCT_ORIENTATION_COL; /* blocks along `in`, the last stored axis */
    assert_true(oct_operand_k_contiguous(&stacked));
    stacked.orientation = OCT_ORIENTATION_ROW;
    assert_false(oct_operand_k_contiguous(&stacked));
    const oct_operand dense = {.orientation = OCT_ORIENTATION_ROW,
                               .data = {.ndim = 2, .shape = {7, 9}}};
    assert_true(oct_operand_k_contiguous(&dense));
}

static void operand_codes__slices__point_at_their_group(void **state)
{
    (void)state;
    static uint8_t codes[2 * 3 * 4];
    oct_operand stacked = {
        .transposed = true,
        .orientation = OCT_ORIENTATION_COL,
        .data = {.data = codes, .dtype = OCT_DTYPE_HIF8, .ndim = 3, .shape = {2, 3, 4}}};
    const oct_operand_slice second = {.group = 1};
    oct_quantized_matrix m = oct_operand_codes(&stacked, &second);
    assert_ptr_equal(m.codes, codes + 12);
    assert_int_equal(m.rows, 3);
    assert_int_equal(m.k, 4);
    stacked.orientation = OCT_ORIENTATION_ROW;
    m = oct_operand_codes(&stacked, &second);
    assert_false(m.k_contiguous);
    assert_int_equal(m.rows, 4);
    assert_int_equal(m.k, 3);
    assert_int_equal(m.ld, 4);
    oct_operand tokens = {
        .orientation = OCT_ORIENTATION_COL,
        .data = {.data = codes, .dtype = OCT_DTYPE_HIF8, .ndim = 2, .shape = {6, 4}}};
    const oct_operand_slice rows = {.group = 1, .row = 2, .rows = 3};
    m = oct_operand_codes(&tokens, &rows);
    assert_ptr_equal(m.codes, codes + 8);
    assert_int_equal(m.rows, 4);
    assert_int_equal(m.k, 3);
}

/* --- products against FP64 sums of the dequantized operands ----------------------------------- */

typedef struct pair {
    oct_operand row, col;
} pair;

static pair quantize(bench *b, const oct_low_precision_recipe *recipe, const oct_tensor *x,
                     const oct_groups *groups)
{
    pair p;
    const oct_role_output row = {
        .role = OCT_ROLE_INPUT_FWD, .operand = &p.row, .arena = &b->persist};
    const oct_role_output col = {
        .role = OCT_ROLE_INPUT_BWD, .operand = &p.col, .arena = &b->persist};
    const oct_lazy source = oct_lazy_of(x);
    assert_ok(b, oct_quantize(&b->run, recipe, "x", &source, groups, &row, &col, &b->err));
    return p;
}

/* Element (r, c) of a 2-D operand of one group. */
static double value(const oct_operand *op, int64_t r, int64_t c)
{
    const int64_t cols = op->data.shape[1];
    const uint8_t code = ((const uint8_t *)op->data.data)[r * cols + c];
    if (op->data.dtype == OCT_DTYPE_HIF8)
        return (double)oct_hif8_decode(code) * (double)*f32(&op->scales);
    const uint8_t *scales = op->scales.data;
    const int byte = op->orientation == OCT_ORIENTATION_ROW
                         ? scales[(r * ((cols + 63) / 64) + c / 64) * 2 + c % 64 / 32]
                         : scales[((r / 64) * cols + c) * 2 + r % 64 / 32];
    return ldexp((double)oct_e4m3_decode(code), byte - 127);
}

static const oct_matmul_label label = {.fqn = "m", .phase = "fprop"};

static void matmul__all_layouts_and_formats__match_fp64(void **state)
{
    (void)state;
    enum { M = 37, N = 21, K = 75 };
    for (int f = 0; oct_low_precision_formats[f]; f++)
        for (int layout = OCT_LAYOUT_NN; layout <= OCT_LAYOUT_TN; layout++) {
            bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
            const oct_low_precision_recipe *recipe = oct_low_precision_formats[f]->recipe;
            const bool tn = layout == OCT_LAYOUT_TN, nt = layout == OCT_LAYOUT_NT;
            oct_tensor a = tn ? tensor_f32(b, K, M) : tensor_f32(b, M, K);
            oct_tensor c = nt ? tensor_f32(b, N, K) : tensor_f32(b, K, N);
            oct_tensor y = tensor_f32(b, M, N);
            fill_f32(a.data, M * K, 3);
            fill_f32(c.data, N * K, 4);
            const pair left = quantize(b, recipe, &a, NULL), right = quantize(b, recipe, &c, NULL);
            const oct_operand *l = tn ? &left.col : &left.row;
            const oct_operand *r = nt ? &right.row : &right.col;
            const oct_gemm_out out = store_f32(&y);
            assert_ok(b, oct_low_precision_matmul(&b->run, &label, l, r, (oct_layout)layout, &out,
                                                  &b->err));
            for (int64_t i = 0; i < M; i++)
                for (int64_t j = 0; j < N; j++) {
                    double sum = 0, size = 0;
                    for (int64_t k = 0; k < K; k++) {
                        const double p = (tn ? value(l, k, i) : value(l, i, k)) *
                                         (nt ? value(r, j, k) : value(r, k, j));
                        sum += p;
                        size += fabs(p);
                    }
                    assert_true(fabs((double)f32(&y)[i * N + j] - sum) <= (K + 4) * 0x1p-24 * size);
                }
            const oct_trace_event *e = &b->events[b->event_count - 1].event;
            assert_int_equal(e->kind, OCT_TRACE_MATMUL);
            assert_string_equal(e->layout, layout == OCT_LAYOUT_NN ? "NN" : nt ? "NT" : "TN");
            assert_string_equal(e->format, oct_low_precision_formats[f]->name);
            assert_string_equal(e->orientation, nt ? "row" : "col");
            assert_int_equal(e->shape[2][0], M);
            assert_int_equal(e->shape[2][1], N);
            bench_free(b);
        }
}

static void matmul__nan_in_an_operand__reaches_the_output(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
        const oct_low_precision_recipe *recipe = oct_low_precision_formats[f]->recipe;
        oct_tensor a = tensor_f32(b, 2, 64), c = tensor_f32(b, 3, 64), y = tensor_f32(b, 2, 3);
        fill_f32(a.data, 128, 1);
        fill_f32(c.data, 192, 2);
        f32(&a)[5] = NAN;
        const pair left = quantize(b, recipe, &a, NULL), right = quantize(b, recipe, &c, NULL);
        const oct_gemm_out out = store_f32(&y);
        assert_ok(b, oct_low_precision_matmul(&b->run, &label, &left.row, &right.row, OCT_LAYOUT_NT,
                                              &out, &b->err));
        for (int j = 0; j < 3; j++) {
            assert_true(isnan(f32(&y)[j]) != 0);
            assert_true(isfinite(f32(&y)[3 + j]));
        }
        bench_free(b);
    }
}

/* --- refusals -------------------------------------------------------------------------------- */

typedef struct refusal {
    bench *b;
    pair mx, mx_right, hif8_right;
    oct_tensor y;
    oct_gemm_out out;
} refusal;

static refusal refusal_new(void)
{
    refusal r = {.b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32)};
    oct_tensor x = tensor_f32(r.b, 4, 40), w = tensor_f32(r.b, 6, 40);
    r.y = tensor_f32(r.b, 4, 6);
    r.out = store_f32(&r.y);
    r.mx = quantize(r.b, oct_mxfp8_format.recipe, &x, NULL);
    r.mx_right = quantize(r.b, oct_mxfp8_format.recipe, &w, NULL);
    r.hif8_right = quantize(r.b, oct_hif8_format.recipe, &w, NULL);
    return r;
}

static oct_status nt(refusal *r, const oct_operand *left, const oct_operand *right)
{
    return oct_low_precision_matmul(&r->b->run, &label, left, right, OCT_LAYOUT_NT, &r->out,
                                    &r->b->err);
}

static void matmul__operands_that_do_not_fit__refused_by_name(void **state)
{
    (void)state;
    refusal r = refusal_new();
    assert_ok(r.b, nt(&r, &r.mx.row, &r.mx_right.row));
    const int events = r.b->event_count;

    assert_fails(r.b, nt(&r, &r.mx.row, &r.hif8_right.row), OCT_E_SHAPE,
                 "left is mxfp8_e4m3 and right is hif8");
    assert_fails(r.b, nt(&r, &r.mx.col, &r.mx_right.row), OCT_E_SHAPE,
                 "the left operand has col orientation, row is required for layout NT");
    assert_fails(r.b, nt(&r, &r.mx.row, &r.mx_right.col), OCT_E_SHAPE,
                 "the right operand has col orientation, row");
    oct_operand bad = r.mx_right.row;
    bad.data.dtype = OCT_DTYPE_HIF8;
    assert_fails(r.b, nt(&r, &r.mx.row, &bad), OCT_E_SHAPE,
                 "data of hifloat8, float8_e4m3fn is required");
    bad = r.mx_right.row;
    bad.scales.dtype = OCT_DTYPE_F32;
    assert_fails(r.b, nt(&r, &r.mx.row, &bad), OCT_E_SHAPE,
                 "scales of float32, float8_e8m0fnu is required");
    bad = r.mx_right.row;
    bad.scales.shape[0] = 5;
    assert_fails(r.b, nt(&r, &r.mx.row, &bad), OCT_E_SHAPE, "10 scales in 3 dimensions, 12 in 3");
    bad = r.mx_right.row;
    bad.scales.data = NULL;
    assert_fails(r.b, nt(&r, &r.mx.row, &bad), OCT_E_SHAPE, "no data or no scales");
    bad = r.mx_right.row;
    bad.data.ndim = 3;
    assert_fails(r.b, nt(&r, &r.mx.row, &bad), OCT_E_SHAPE, "3 dimensions, 2 are required");
    bad = r.mx_right.row; /* K of 20: another contraction */
    bad.data.shape[1] = 20;
    assert_fails(r.b, nt(&r, &r.mx.row, &bad), OCT_E_SHAPE, "contract 40 with 20");
    assert_non_null(strstr(r.b->err.msg, "fprop product of 'm'"));
    assert_int_equal(r.b->event_count, events); /* nothing ran */
    bench_free(r.b);
}

static void matmul__output_that_does_not_fit__refused(void **state)
{
    (void)state;
    refusal r = refusal_new();
    r.out.dtype = OCT_DTYPE_I32;
    assert_fails(r.b, nt(&r, &r.mx.row, &r.mx_right.row), OCT_E_SHAPE, "the output is int32");
    r.out = store_f32(&r.y);
    r.out.ld = 5;
    assert_fails(r.b, nt(&r, &r.mx.row, &r.mx_right.row), OCT_E_SHAPE, "rows of 5, 6 required");
    r.out = store_f32(&r.y);
    r.out.store = OCT_GEMM_CONTINUE;
    assert_fails(r.b, nt(&r, &r.mx.row, &r.mx_right.row), OCT_E_SHAPE, "continued");
    r.out.store = OCT_GEMM_FOLD;
    r.out.dtype = OCT_DTYPE_BF16;
    assert_fails(r.b, nt(&r, &r.mx.row, &r.mx_right.row), OCT_E_SHAPE, "folded into bfloat16");
    bench_free(r.b);
}

static void grouped_matmul__group_list_that_does_not_fit__refused(void **state)
{
    (void)state;
    refusal r = refusal_new();
    oct_tensor x = tensor_f32(r.b, 6, 40), g = tensor_f32(r.b, 6, 8), dw = tensor_f32(r.b, 16, 40);
    const int64_t ends[2] = {2, 6}, moved[2] = {3, 6}, longer[2] = {2, 7}, three[3] = {2, 4, 6};
    const oct_groups groups = {.count = 2, .ends = ends};
    const pair left = quantize(r.b, oct_mxfp8_format.recipe, &g, &groups);
    const pair right = quantize(r.b, oct_mxfp8_format.recipe, &x, &groups);
    const pair whole = quantize(r.b, oct_mxfp8_format.recipe, &x, NULL);
    const oct_gemm_out out = store_f32(&dw);
    const oct_run *run = &r.b->run;
#define TN(l, rr, list)                                                                            \
    oct_low_precision_grouped_matmul(run, &label, (l), (rr), OCT_LAYOUT_TN, (list), &out, &r.b->err)
    assert_ok(r.b, TN(&left.col, &right.col, &groups));
    assert_fails(r.b, TN(&left.col, &right.col, (&(oct_groups){.count = 2, .ends = moved})),
                 OCT_E_SHAPE, "group 0 of the left operand ends at row 2, row 3");
    assert_fails(r.b, TN(&left.col, &right.col, (&(oct_groups){.count = 2, .ends = longer})),
                 OCT_E_SHAPE, "group 1 of the left operand ends at row 6, row 7");
    assert_fails(r.b, TN(&left.col, &right.col, (&(oct_groups){.count = 3, .ends = three})),
                 OCT_E_SHAPE, "quantized in 2 groups, 3");
    assert_fails(r.b, TN(&left.col, &whole.col, &groups), OCT_E_SHAPE,
                 "the right operand was quantized in 0 groups, 2");
    assert_fails(r.b, TN(&left.col, &right.col, NULL), OCT_E_SHAPE, "no groups");
#undef TN
    /* A plain product of grouped operands would mix scales. */
    assert_fails(r.b,
                 oct_low_precision_matmul(run, &label, &left.col, &right.col, OCT_LAYOUT_TN, &out,
                                          &r.b->err),
                 OCT_E_SHAPE, "quantized in 2 groups, 0");
    /* A 2-D right side where a stack is needed. */
    assert_fails(r.b,
                 oct_low_precision_grouped_matmul(run, &label, &right.row, &r.mx_right.row,
                                                  OCT_LAYOUT_NT, &groups, &out, &r.b->err),
                 OCT_E_SHAPE, "2 dimensions, 3 are required");
    bench_free(r.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operand_view__stored_and_transposed__gemm_dims),
        cmocka_unit_test(operand_codes__slices__point_at_their_group),
        cmocka_unit_test(matmul__all_layouts_and_formats__match_fp64),
        cmocka_unit_test(matmul__nan_in_an_operand__reaches_the_output),
        cmocka_unit_test(matmul__operands_that_do_not_fit__refused_by_name),
        cmocka_unit_test(matmul__output_that_does_not_fit__refused),
        cmocka_unit_test(grouped_matmul__group_list_that_does_not_fit__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
