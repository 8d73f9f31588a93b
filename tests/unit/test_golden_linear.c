/* Linear and grouped linear against golden/model/ops.json: y, dx, dw in high precision, MXFP8 with
 * both scale rules, and HiF8; every instruction set gives the same bits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>

#include "kernels/gemm.h"
#include "low_precision/functional/grouped_linear.h"
#include "low_precision/functional/linear.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "unit/low_precision_fixture.h"

/* --- the recipe of golden/model/README.md ----------------------------------------------------- */

static uint64_t mix64(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int64_t recipe_value(const char *name, uint64_t i, uint64_t seed)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *name; name++)
        h = (h ^ (uint64_t)(unsigned char)*name) * 0x100000001B3u;
    const uint64_t u = mix64(mix64(h ^ mix64(seed)) + i);
    return (int64_t)((u & 0xffff) + (u >> 16 & 0xffff) + (u >> 32 & 0xffff) + (u >> 48)) - 131070;
}

/* Tensor op/<op>/<name> of the case, its pattern applied. */
static void make_tensor(const json_t *root, const json_t *item, const char *name, int64_t rows,
                        int64_t cols, float *out)
{
    char full[64];
    const bool grouped = json_object_get(item, "counts") != NULL;
    snprintf(full, sizeof full, "op/%s/%s", grouped ? "grouped" : "linear", name);
    const int shift =
        (int)json_integer_value(json_object_get(json_object_get(item, "shift"), name));
    const json_t *pattern = json_object_get(json_object_get(root, "patterns"),
                                            json_string_value(json_object_get(item, "pattern")));
    const int64_t a = json_integer_value(json_object_get(pattern, "a"));
    const int64_t b = json_integer_value(json_object_get(pattern, "b"));
    const int64_t m = json_integer_value(json_object_get(pattern, "m"));
    const int64_t o = json_integer_value(json_object_get(pattern, "o"));
    const uint64_t seed = (uint64_t)json_integer_value(json_object_get(root, "seed"));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t v = recipe_value(full, (uint64_t)(r * cols + c), seed);
            const int power = (int)((a * r + b * c) % m + o);
            out[r * cols + c] = (float)ldexp((double)v, power - shift);
        }
}

/* --- comparison ------------------------------------------------------------------------------ */

static const double BOUND = 2e-6; /* README: of the sum of |products| of a row or column */

static double number(const json_t *array, int64_t i)
{
    return json_number_value(json_array_get(array, (size_t)i));
}

static void check_result(const json_t *item, const char *name, const float *got, int64_t rows,
                         int64_t cols)
{
    const json_t *want = json_object_get(item, name);
    const json_t *row_sum = json_object_get(want, "row_sum");
    const json_t *col_sum = json_object_get(want, "col_sum");
    const json_t *row_mag = json_object_get(want, "row_mag");
    const json_t *col_mag = json_object_get(want, "col_mag");
    assert_int_equal(json_array_size(row_sum), rows);
    assert_int_equal(json_array_size(col_sum), cols);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < cols; c++)
            sum += (double)got[r * cols + c];
        const double bound = BOUND * number(row_mag, r);
        if (!(fabs(sum - number(row_sum, r)) <= bound))
            fail_msg("%s %s %s: row %d sums to %.12g, %.12g within %g is required",
                     json_string_value(json_object_get(item, "op")),
                     json_string_value(json_object_get(item, "mode")), name, (int)r, sum,
                     number(row_sum, r), bound);
    }
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++)
            sum += (double)got[r * cols + c];
        const double bound = BOUND * number(col_mag, c);
        if (!(fabs(sum - number(col_sum, c)) <= bound))
            fail_msg("%s %s %s: column %d sums to %.12g, %.12g within %g is required",
                     json_string_value(json_object_get(item, "op")),
                     json_string_value(json_object_get(item, "mode")), name, (int)c, sum,
                     number(col_sum, c), bound);
    }
    const json_t *first = json_object_get(want, "first");
    for (int64_t i = 0; i < (int64_t)json_array_size(first); i++)
        assert_true(fabs((double)got[i] - number(first, i)) <= BOUND * number(row_mag, 0));
}

/* --- the computation ------------------------------------------------------------------------- */

enum { MAX_GROUPS = 16 };

typedef struct layer {
    int64_t tokens, in, out;
    int64_t experts; /* 0: a plain linear */
    oct_groups groups;
    int64_t ends[MAX_GROUPS];
    const oct_low_precision_recipe *recipe; /* NULL: high precision */
    oct_tensor x, w, g;                     /* w [max(experts, 1) * out, in] */
    oct_tensor y, dx, dw;
} layer;

static void read_layer(bench *b, const json_t *root, const json_t *item, layer *l)
{
    const json_t *counts = json_object_get(item, "counts");
    l->in = json_integer_value(json_object_get(item, "K"));
    l->out = json_integer_value(json_object_get(item, "M"));
    l->tokens = json_integer_value(json_object_get(item, "N"));
    l->experts = (int64_t)json_array_size(counts);
    assert_true(l->experts <= MAX_GROUPS);
    for (int64_t e = 0; e < l->experts; e++) {
        l->tokens += json_integer_value(json_array_get(counts, (size_t)e));
        l->ends[e] = l->tokens;
    }
    l->groups = (oct_groups){.count = l->experts, .ends = l->ends};
    const char *mode = json_string_value(json_object_get(item, "mode"));
    l->recipe = NULL;
    if (strstr(mode, "mxfp8_alg1"))
        l->recipe = oct_mxfp8_recipe(OCT_MX_RULE_ROUND_UP);
    else if (strstr(mode, "mxfp8_alg0"))
        l->recipe = oct_mxfp8_recipe(OCT_MX_RULE_FLOOR);
    else if (strstr(mode, "hif8"))
        l->recipe = oct_hif8_format.recipe;
    else
        assert_string_equal(mode, "none");
    const int64_t rows = (l->experts ? l->experts : 1) * l->out;
    l->x = tensor_f32(b, l->tokens, l->in);
    l->w = tensor_f32(b, rows, l->in);
    l->g = tensor_f32(b, l->tokens, l->out);
    l->y = tensor_f32(b, l->tokens, l->out);
    l->dx = tensor_f32(b, l->tokens, l->in);
    l->dw = tensor_f32(b, rows, l->in);
    make_tensor(root, item, "x", l->tokens, l->in, l->x.data);
    make_tensor(root, item, "w", rows, l->in, l->w.data);
    make_tensor(root, item, "g", l->tokens, l->out, l->g.data);
}

static void run_high_precision(bench *b, layer *l)
{
    const oct_matrix x = oct_matrix_of(&l->x), w = oct_matrix_of(&l->w), g = oct_matrix_of(&l->g);
    const oct_gemm_out y = store_f32(&l->y), dx = store_f32(&l->dx), dw = store_f32(&l->dw);
    const oct_exec *exec = &b->exec;
    if (l->experts) {
        assert_ok(b, oct_gemm_grouped(exec, &x, &w, &l->groups, OCT_LAYOUT_NT, &y, &b->err));
        assert_ok(b, oct_gemm_grouped(exec, &g, &w, &l->groups, OCT_LAYOUT_NN, &dx, &b->err));
        assert_ok(b, oct_gemm_grouped(exec, &g, &x, &l->groups, OCT_LAYOUT_TN, &dw, &b->err));
    } else {
        assert_ok(b, oct_gemm(exec, &x, &w, OCT_LAYOUT_NT, &y, &b->err));
        assert_ok(b, oct_gemm(exec, &g, &w, OCT_LAYOUT_NN, &dx, &b->err));
        assert_ok(b, oct_gemm(exec, &g, &x, OCT_LAYOUT_TN, &dw, &b->err));
    }
}

static void run_low_precision(bench *b, layer *l)
{
    const oct_low_precision_policy policy = oct_low_precision_policy_of(l->recipe);
    const int64_t shape[3] = {l->experts, l->out, l->in};
    const oct_gemm_out dw = store_f32(&l->dw);
    oct_operand saved;
    oct_weight_storage *weight =
        weight_of(b, &policy, "w", l->experts ? 3 : 2, l->experts ? shape : shape + 1, l->w.data);
    if (l->experts) {
        const oct_lazy x = oct_lazy_of(&l->x), dy = oct_lazy_of(&l->g);
        assert_ok(b, oct_low_precision_grouped_linear_forward(&b->run, weight, &x, &l->groups,
                                                              &l->y, &saved, &b->err));
        assert_ok(b, oct_low_precision_grouped_linear_backward(&b->run, weight, &saved, &l->groups,
                                                               &dy, &l->dx, &dw, &b->err));
    } else {
        assert_ok(b, oct_low_precision_linear_forward(&b->run, "w", weight, NULL, &l->x, &l->y,
                                                      &saved, &b->err));
        assert_ok(b, oct_low_precision_linear_backward(&b->run, "w", weight, &saved, &l->g, &l->dx,
                                                       &dw, &b->err));
    }
    weight_free(weight);
}

static void run_case(const json_t *root, const json_t *item, oct_isa isa, layer *l, bench **out)
{
    bench *b = bench_new(isa, OCT_DTYPE_F32);
    read_layer(b, root, item, l);
    if (l->recipe)
        run_low_precision(b, l);
    else
        run_high_precision(b, l);
    *out = b;
}

static void assert_same_bits(const oct_tensor *a, const oct_tensor *b)
{
    assert_memory_equal(a->data, b->data, oct_tensor_bytes(a));
}

static void linear__golden_cases__within_bounds_and_same_bits_everywhere(void **state)
{
    (void)state;
    char path[1024];
    const char *golden = getenv("OCTET_GOLDEN");
    assert_non_null(golden);
    snprintf(path, sizeof path, "%s/model/ops.json", golden);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    size_t index;
    const json_t *item;
    int compared = 0;
    json_array_foreach(json_object_get(root, "cases"), index, item)
    {
        if (!strstr(json_string_value(json_object_get(item, "op")), "linear"))
            continue;
        layer ref, fast;
        bench *b_ref, *b_fast;
        run_case(root, item, OCT_ISA_REF, &ref, &b_ref);
        check_result(item, "y", ref.y.data, ref.tokens, ref.out);
        check_result(item, "dx", ref.dx.data, ref.tokens, ref.in);
        check_result(item, "dw", ref.dw.data, oct_tensor_rows(&ref.dw), ref.in);
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            run_case(root, item, (oct_isa)isa, &fast, &b_fast);
            assert_same_bits(&ref.y, &fast.y);
            assert_same_bits(&ref.dx, &fast.dx);
            assert_same_bits(&ref.dw, &fast.dw);
            bench_free(b_fast);
        }
        bench_free(b_ref);
        compared++;
    }
    assert_true(compared > 0);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear__golden_cases__within_bounds_and_same_bits_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
