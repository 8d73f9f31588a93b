/* Matrices that are made while they are read: every reader gets from them, bit for bit, what it
 * gets from the same matrix stored, asks for nothing outside of it, and as often as it says. */
#include "exec_fixture.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "gemm_random.h"
#include "guarded.h"

#include "base/size.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/recipe.h"
#include "numeric/bf16.h"

/* A stored matrix that passes for a made one. */
typedef struct maker {
    oct_tensor x;
    _Atomic int64_t made; /* elements */
} maker;

static void make(const void *arg, int64_t row, int64_t rows, int64_t col, int64_t cols, void *tile,
                 int64_t ld)
{
    maker *m = (maker *)(uintptr_t)arg;
    const int64_t n = m->x.shape[1];
    const size_t size = oct_dtype_bytes(m->x.dtype);
    assert_true(rows > 0 && row >= 0 && row + rows <= m->x.shape[0]);
    assert_true(cols > 0 && col >= 0 && col + cols <= n && ld >= cols);
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)tile + (size_t)(r * ld) * size,
               (const char *)m->x.data + (size_t)((row + r) * n + col) * size, (size_t)cols * size);
    atomic_fetch_add(&m->made, rows * cols);
}

static oct_lazy lazy_of(maker *m, bool cheap)
{
    return (oct_lazy){.dtype = m->x.dtype,
                      .rows = m->x.shape[0],
                      .cols = m->x.shape[1],
                      .make = make,
                      .arg = m,
                      .cheap = cheap};
}

static void maker_open(maker *m, oct_dtype dtype, int64_t rows, int64_t cols)
{
    *m = (maker){.x = oct_tensor_2d(NULL, dtype, rows, cols)};
    m->x.data = malloc((size_t)(rows * cols) * sizeof(float) + 1);
    assert_non_null(m->x.data);
    for (int64_t i = 0; i < rows * cols; i++) {
        float x = ldexpf((float)random_normal(), (int)random_below(12) - 6);
        if (random_below(1000) == 0)
            x = random_below(2) ? NAN : -INFINITY;
        if (dtype == OCT_DTYPE_BF16)
            ((uint16_t *)m->x.data)[i] = oct_bf16_from_f32(x);
        else
            ((float *)m->x.data)[i] = x;
    }
}

static void maker_close(maker *m)
{
    free(m->x.data);
}

/* Three groups of rows, the second empty. */
static oct_groups groups_of(int64_t rows, int64_t ends[3])
{
    ends[0] = ends[1] = rows / 3;
    ends[2] = rows;
    return (oct_groups){.count = 3, .ends = ends};
}

static const oct_dtype dtypes[] = {OCT_DTYPE_F32, OCT_DTYPE_BF16};

/* --- quantizers --------------------------------------------------------------------------------
 */

enum { FORMS = 4 };

typedef struct forms {
    guarded bytes[FORMS];
    oct_mx_out out;
} forms;

static forms forms_new(const maker *m, const oct_groups *groups, bool row, bool col)
{
    const int64_t rows = m->x.shape[0], cols = m->x.shape[1];
    const int64_t sizes[FORMS] = {rows * cols, rows * oct_ceil_div(cols, 64) * 2, rows * cols,
                                  oct_mx_col_pairs(groups, rows) * cols * 2};
    forms f;
    for (int i = 0; i < FORMS; i++)
        f.bytes[i] = guarded_new((size_t)sizes[i], i % 2);
    f.out = (oct_mx_out){.row_codes = row ? f.bytes[0].data : NULL,
                         .row_scales = row ? f.bytes[1].data : NULL,
                         .col_codes = col ? f.bytes[2].data : NULL,
                         .col_scales = col ? f.bytes[3].data : NULL};
    return f;
}

static void check_mx(fixture_exec *f, maker *m, const oct_groups *groups, bool row, bool col)
{
    forms stored = forms_new(m, groups, row, col), made = forms_new(m, groups, row, col);
    const oct_lazy lazy = lazy_of(m, true);
    oct_err err = {0};
    m->made = 0;
    assert_int_equal(
        oct_mx_quantize(&f->exec, &m->x, groups, OCT_MX_RULE_ROUND_UP, &stored.out, &err), 0);
    assert_int_equal(m->made, 0);
    assert_int_equal(
        oct_mx_quantize_lazy(&f->exec, &lazy, groups, OCT_MX_RULE_ROUND_UP, &made.out, &err), 0);
    assert_int_equal(m->made, oct_tensor_numel(&m->x)); /* once for both orientations */
    for (int i = 0; i < FORMS; i++) {
        assert_memory_equal(made.bytes[i].data, stored.bytes[i].data, stored.bytes[i].bytes);
        guarded_free(&stored.bytes[i]);
        guarded_free(&made.bytes[i]);
    }
}

static const int64_t sizes[][2] = {{1, 1},    {3, 31},    {64, 256},  {65, 257}, {63, 255},
                                   {130, 77}, {200, 300}, {97, 2049}, {5, 4100}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void mx_quantize__made__equals_stored(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int i = 0; i < SIZES; i++)
        for (int d = 0; d < 2; d++) {
            maker m;
            int64_t ends[3];
            maker_open(&m, dtypes[d], sizes[i][0], sizes[i][1]);
            const oct_groups groups = groups_of(sizes[i][0], ends);
            for (int e = 0; e < EXECS; e++) {
                check_mx(execs[e], &m, &groups, true, true);
                check_mx(execs[e], &m, NULL, i % 2, i % 2 == 0);
            }
            maker_close(&m);
        }
    execs_close(execs);
}

static void check_hif8(fixture_exec *f, maker *m, const oct_groups *groups, bool keep)
{
    const size_t numel = (size_t)oct_tensor_numel(&m->x);
    const size_t bytes = numel * oct_dtype_bytes(m->x.dtype);
    guarded stored = guarded_new(numel, true), made = guarded_new(numel, true);
    guarded kept = guarded_new(bytes, false);
    const oct_tensor place = oct_tensor_2d(kept.data, m->x.dtype, m->x.shape[0], m->x.shape[1]);
    const oct_lazy lazy = lazy_of(m, !keep);
    float stored_amax[3], made_amax[3], scales[3];
    oct_err err = {0};
    m->made = 0;
    assert_int_equal(oct_hif8_amax(&f->exec, &m->x, groups, stored_amax, &err), 0);
    assert_int_equal(
        oct_hif8_amax_lazy(&f->exec, &lazy, groups, keep ? &place : NULL, made_amax, &err), 0);
    assert_memory_equal(made_amax, stored_amax, sizeof made_amax);
    assert_int_equal(m->made, numel);
    if (keep)
        assert_memory_equal(kept.data, m->x.data, bytes);
    for (int g = 0; g < 3; g++)
        scales[g] = 0.5f + (float)g;
    assert_int_equal(oct_hif8_quantize(&f->exec, &m->x, groups, scales, false, stored.data, &err),
                     0);
    assert_int_equal(
        oct_hif8_quantize_lazy(&f->exec, &lazy, groups, scales, false, made.data, &err), 0);
    assert_memory_equal(made.data, stored.data, numel);
    assert_int_equal(m->made, 2 * numel);
    guarded_free(&stored);
    guarded_free(&made);
    guarded_free(&kept);
}

static void hif8__made__equals_stored(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int i = 0; i < SIZES; i++)
        for (int d = 0; d < 2; d++) {
            maker m;
            int64_t ends[3];
            maker_open(&m, dtypes[d], sizes[i][0], sizes[i][1]);
            const oct_groups groups = groups_of(sizes[i][0], ends);
            for (int e = 0; e < EXECS; e++) {
                check_hif8(execs[e], &m, &groups, false);
                check_hif8(execs[e], &m, &groups, true);
            }
            maker_close(&m);
        }
    execs_close(execs);
}

/* A NaN in any part of a row that is made counts, and the largest of all parts. */
static void hif8_amax__made__from_every_part(void **state)
{
    (void)state;
    enum { ROWS = 40, COLS = 4100 };
    fixture_exec *f = exec_new(oct_cpu_isa(), 2);
    float *x = calloc((size_t)ROWS * COLS, sizeof *x);
    assert_non_null(x);
    maker m = {.x = oct_tensor_2d(x, OCT_DTYPE_F32, ROWS, COLS)};
    const oct_lazy lazy = lazy_of(&m, true);
    static const int64_t at[] = {0, 2047, 2048, 4099, 4100, 65535, 65536, (int64_t)ROWS * COLS - 1};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        float amax = -1.0f;
        oct_err err = {0};
        x[at[i]] = -3.0f;
        assert_int_equal(oct_hif8_amax_lazy(&f->exec, &lazy, NULL, NULL, &amax, &err), 0);
        assert_true(amax == 3.0f);
        x[at[i]] = NAN;
        assert_int_equal(oct_hif8_amax_lazy(&f->exec, &lazy, NULL, NULL, &amax, &err), 0);
        assert_true(isnan(amax));
        x[at[i]] = 0.0f;
    }
    free(x);
    exec_free(f);
}

/* HiF8 reads twice: what is cheap is made twice, what is not is kept in scratch meanwhile. */
static void hif8_format__made__twice_only_if_cheap(void **state)
{
    (void)state;
    const oct_low_precision_format *format = &oct_hif8_format;
    fixture_exec *f = exec_new(oct_cpu_isa(), 2);
    oct_arena arena;
    oct_arena_init(&arena, "operands");
    maker m;
    maker_open(&m, OCT_DTYPE_BF16, 70, 300);
    oct_operand operands[3];
    for (int i = 0; i < 3; i++) {
        const oct_lazy source = i < 2 ? lazy_of(&m, i == 0) : oct_lazy_of(&m.x);
        const oct_quantize_want want = {.operand = &operands[i], .arena = &arena}, no = {0};
        oct_err err = {0};
        m.made = 0;
        assert_int_equal(format->quantize(&f->exec,
                                          oct_recipe_quantizer(format->recipe, OCT_ROLE_INPUT_FWD),
                                          &source, NULL, &want, &no, &err),
                         OCT_OK);
        assert_int_equal(m.made, (i == 0 ? 2 : i == 1 ? 1 : 0) * oct_tensor_numel(&m.x));
        assert_memory_equal(operands[i].data.data, operands[0].data.data, 70 * 300);
        assert_memory_equal(operands[i].scales.data, operands[0].scales.data, sizeof(float));
    }
    maker_close(&m);
    oct_arena_release(&arena);
    exec_free(f);
}

static void quantize__place_of_another_shape__is_refused(void **state)
{
    (void)state;
    fixture_exec *f = exec_new(OCT_ISA_REF, 1);
    float x[6] = {0}, y[6] = {0}, amax;
    maker m = {.x = oct_tensor_2d(x, OCT_DTYPE_F32, 2, 3)};
    const oct_lazy lazy = lazy_of(&m, false);
    const oct_tensor wrong[] = {oct_tensor_2d(y, OCT_DTYPE_F32, 3, 2),
                                oct_tensor_2d(y, OCT_DTYPE_BF16, 2, 3)};
    for (int i = 0; i < 2; i++) {
        oct_err err = {0};
        assert_int_equal(oct_hif8_amax_lazy(&f->exec, &lazy, NULL, &wrong[i], &amax, &err),
                         OCT_E_SHAPE);
        assert_int_equal(oct_lazy_store(&f->exec, &lazy, &wrong[i], &err), OCT_E_SHAPE);
    }
    assert_int_equal(m.made, 0);
    exec_free(f);
}

/* More elements than one thread takes at a time. */
static void store__stored_or_made__equals_the_matrix(void **state)
{
    (void)state;
    fixture_exec *f = exec_new(OCT_ISA_REF, 2);
    maker m;
    maker_open(&m, OCT_DTYPE_BF16, 300, 257);
    guarded place = guarded_new(oct_tensor_bytes(&m.x), true);
    const oct_tensor y = oct_tensor_2d(place.data, OCT_DTYPE_BF16, 300, 257);
    for (int made = 0; made < 2; made++) {
        const oct_lazy lazy = made ? lazy_of(&m, true) : oct_lazy_of(&m.x);
        oct_err err = {0};
        memset(place.data, 0, place.bytes);
        assert_int_equal(oct_lazy_store(&f->exec, &lazy, &y, &err), OCT_OK);
        assert_memory_equal(place.data, m.x.data, place.bytes);
    }
    guarded_free(&place);
    maker_close(&m);
    exec_free(f);
}

/* --- products ----------------------------------------------------------------------------------
 */

static void check_products(fixture_exec *f, maker *a, maker *b, const oct_groups *groups,
                           oct_layout layout, int64_t m, int64_t n)
{
    const oct_lazy left = lazy_of(a, true), right = lazy_of(b, true);
    const oct_lazy stored_left = oct_lazy_of(&a->x), stored_right = oct_lazy_of(&b->x);
    float *c[2];
    for (int i = 0; i < 2; i++) {
        c[i] = malloc((size_t)(m * n) * sizeof **c + 1);
        assert_non_null(c[i]);
    }
    for (int which = 0; which < 4; which++) { /* bit 0: left is made, bit 1: right is made */
        const oct_matrix l = oct_matrix_of_lazy(which & 1 ? &left : &stored_left);
        const oct_matrix r = oct_matrix_of_lazy(which & 2 ? &right : &stored_right);
        const oct_gemm_out out = {.data = c[which > 0], .ld = n, .dtype = OCT_DTYPE_F32};
        oct_err err = {0};
        a->made = b->made = 0;
        assert_int_equal(oct_gemm_grouped(&f->exec, &l, &r, groups, layout, &out, &err), OCT_OK);
        assert_int_equal(a->made, which & 1 ? oct_tensor_numel(&a->x) : 0);
        if (!(which & 2))
            assert_int_equal(b->made, 0);
        else if (layout == OCT_LAYOUT_TN)
            assert_int_equal(b->made, oct_tensor_numel(&b->x));
        if (which > 0)
            assert_memory_equal(c[1], c[0], (size_t)(m * n) * sizeof **c);
    }
    free(c[0]);
    free(c[1]);
}

static void gemm_grouped__made__equals_stored(void **state)
{
    (void)state;
    /* rows of all groups, inner or outer size of a group, the other. */
    static const int64_t shapes[][3] = {
        {1, 1, 1}, {30, 33, 17}, {100, 513, 40}, {47, 1030, 65}, {2100, 20, 45}};
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int d = 0; d < 2; d++) {
            const int64_t rows = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
            int64_t ends[3];
            maker x, nt, nn, dy;
            const oct_groups groups = groups_of(rows, ends);
            maker_open(&x, dtypes[d], rows, k);
            maker_open(&nt, dtypes[d], 3 * n, k);
            maker_open(&nn, dtypes[d], 3 * k, n);
            maker_open(&dy, dtypes[d], rows, n);
            for (int e = 0; e < EXECS; e++) {
                check_products(execs[e], &x, &nt, &groups, OCT_LAYOUT_NT, rows, n);
                check_products(execs[e], &x, &nn, &groups, OCT_LAYOUT_NN, rows, n);
                check_products(execs[e], &dy, &x, &groups, OCT_LAYOUT_TN, 3 * n, k);
            }
            maker_close(&x);
            maker_close(&nt);
            maker_close(&nn);
            maker_close(&dy);
        }
    execs_close(execs);
}

/* --- operators that are made --------------------------------------------------------------------
 */

static void swiglu__in_parts__equals_the_whole(void **state)
{
    (void)state;
    enum { ROWS = 5, F = 37 };
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        for (int d = 0; d < 2; d++) {
            fixture_exec *f = exec_new((oct_isa)isa, 1);
            maker pair;
            maker_open(&pair, dtypes[d], ROWS, 2 * F);
            const size_t size = oct_dtype_bytes(dtypes[d]);
            oct_swiglu_operands operands = {
                .kernels = &f->kernels.elementwise,
                .gate = oct_tensor_2d(pair.x.data, dtypes[d], ROWS, F),
                .up = oct_tensor_2d((char *)pair.x.data + F * size, dtypes[d], ROWS, F),
                .ld_gate = 2 * F,
                .ld_up = 2 * F};
            const oct_lazy lazy = oct_swiglu_lazy(&operands);
            assert_int_equal(lazy.rows, ROWS);
            assert_int_equal(lazy.cols, F);
            assert_false(lazy.cheap);
            float whole[ROWS * F] = {0}, part[2 * 9] = {0};
            const oct_tensor y = oct_tensor_2d(whole, dtypes[d], ROWS, F);
            oct_err err = {0};
            assert_int_equal(
                oct_swiglu(&f->exec, &operands.gate, 2 * F, &operands.up, 2 * F, &y, &err), OCT_OK);
            lazy.make(lazy.arg, 2, 2, 21, 9, part, 9);
            for (int r = 0; r < 2; r++)
                assert_memory_equal((char *)part + (size_t)(r * 9) * size,
                                    (char *)whole + (size_t)((2 + r) * F + 21) * size, 9 * size);
            maker_close(&pair);
            exec_free(f);
        }
}

static void route_rows__in_parts__equals_the_whole(void **state)
{
    (void)state;
    enum { TOKENS = 9, TOP_K = 2, H = 35, S = TOKENS * TOP_K };
    guarded last = guarded_new(S * sizeof(int32_t), true); /* nothing behind it may be read */
    int32_t *source = (int32_t *)(void *)last.data;
    float weights[S];
    for (int s = 0; s < S; s++) {
        source[s] = (s * 5 + 3) % S;
        weights[s] = 0.3f + 0.1f * (float)s;
    }
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        for (int d = 0; d < 2; d++)
            for (int weighted = 0; weighted < 2; weighted++) {
                fixture_exec *f = exec_new((oct_isa)isa, 2);
                maker x;
                maker_open(&x, dtypes[d], TOKENS, H);
                const oct_routed routed = {.kernels = &f->kernels.elementwise,
                                           .x = x.x,
                                           .source_S = source,
                                           .top_k = TOP_K,
                                           .weights_TK = weighted ? weights : NULL};
                const oct_lazy lazy = oct_route_rows(&routed);
                assert_true(lazy.cheap);
                const size_t size = oct_dtype_bytes(dtypes[d]);
                float whole[S * H] = {0}, part[4 * 40] = {0};
                const oct_tensor y = oct_tensor_2d(whole, dtypes[d], S, H);
                oct_err err = {0};
                assert_int_equal(oct_lazy_store(&f->exec, &lazy, &y, &err), OCT_OK);
                lazy.make(lazy.arg, 13, 4, 3, 20, part, 40);
                for (int r = 0; r < 4; r++)
                    assert_memory_equal((char *)part + (size_t)(r * 40) * size,
                                        (char *)whole + (size_t)((13 + r) * H + 3) * size,
                                        20 * size);
                maker_close(&x);
                exec_free(f);
            }
    guarded_free(&last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mx_quantize__made__equals_stored),
        cmocka_unit_test(hif8__made__equals_stored),
        cmocka_unit_test(hif8_amax__made__from_every_part),
        cmocka_unit_test(hif8_format__made__twice_only_if_cheap),
        cmocka_unit_test(quantize__place_of_another_shape__is_refused),
        cmocka_unit_test(store__stored_or_made__equals_the_matrix),
        cmocka_unit_test(gemm_grouped__made__equals_stored),
        cmocka_unit_test(swiglu__in_parts__equals_the_whole),
        cmocka_unit_test(route_rows__in_parts__equals_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
