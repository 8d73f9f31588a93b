/* The core attention cases of golden/model/ops.json: FP64 results for inputs made by the recipe of
 * its README. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/exec.h"

/* --- the recipe ------------------------------------------------------------------------------- */

static uint64_t mix64(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t fnv(const char *s)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001B3u;
    return h;
}

static double recipe(const char *name, uint64_t i, uint64_t seed)
{
    const uint64_t u = mix64(mix64(fnv(name) ^ mix64(seed)) + i);
    const int64_t fields =
        (int64_t)((u & 0xffffu) + (u >> 16 & 0xffffu) + (u >> 32 & 0xffffu) + (u >> 48));
    return (double)(fields - 131070);
}

static float *recipe_tensor(const char *name, int64_t n, uint64_t seed, int shift)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)ldexp(recipe(name, (uint64_t)i, seed), -shift);
    return x;
}

/* --- comparison ------------------------------------------------------------------------------- */

static double largest(const json_t *values, double start)
{
    size_t i;
    json_t *value;
    json_array_foreach(values, i, value) start = fmax(start, fabs(json_number_value(value)));
    return start;
}

static void assert_near(const char *what, size_t at, double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%s[%zu] = %.9g, golden %.9g, bound %.3g", what, at, got, want, bound);
}

/* x [rows, cols] against a golden record: within 1e-5 of the largest value. */
static void assert_matches(const char *what, const float *x, int64_t rows, int64_t cols,
                           const json_t *golden)
{
    const json_t *row_sum = json_object_get(golden, "row_sum");
    const json_t *col_sum = json_object_get(golden, "col_sum");
    const json_t *first = json_object_get(golden, "first");
    assert_int_equal(json_array_size(row_sum), rows);
    assert_int_equal(json_array_size(col_sum), cols);
    double max = 0.0, squares = 0.0;
    for (int64_t i = 0; i < rows * cols; i++) {
        max = fmax(max, fabs((double)x[i]));
        squares += (double)x[i] * (double)x[i];
    }
    for (size_t i = 0; i < json_array_size(first); i++)
        assert_near(what, i, (double)x[i], json_number_value(json_array_get(first, i)), 1e-5 * max);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int64_t c = 0; c < cols; c++)
            sum += (double)x[r * cols + c];
        assert_near(what, (size_t)r, sum, json_number_value(json_array_get(row_sum, (size_t)r)),
                    1e-5 * largest(row_sum, max));
    }
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0.0;
        for (int64_t r = 0; r < rows; r++)
            sum += (double)x[r * cols + c];
        assert_near(what, (size_t)c, sum, json_number_value(json_array_get(col_sum, (size_t)c)),
                    1e-5 * largest(col_sum, max));
    }
    const double l2 = json_number_value(json_object_get(golden, "l2"));
    assert_near(what, 0, sqrt(squares), l2, 1e-5 * l2);
}

/* --- one case --------------------------------------------------------------------------------- */

static int64_t integer(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

/* The golden tensors are [1, heads, T, dim]. */
static oct_attention_view view_of(float *data, int64_t tokens, int64_t dim)
{
    return (oct_attention_view){.data = data, .token_stride = dim, .head_stride = tokens * dim};
}

static void run_case(const json_t *golden, uint64_t seed, oct_isa isa)
{
    const int64_t heads = integer(golden, "heads"), T = integer(golden, "T");
    const int64_t D = integer(golden, "d_qk"), E = integer(golden, "d_v");
    const int shift = (int)integer(golden, "shift");
    const int32_t cu_seqlens[2] = {0, (int32_t)T};
    const oct_attention_shape shape = {
        .dtype = OCT_DTYPE_F32,
        .heads = heads,
        .qk_dim = D,
        .v_dim = E,
        .sequences = 1,
        .cu_seqlens = cu_seqlens,
        .softmax_scale = (float)json_number_value(json_object_get(golden, "scale"))};
    float *q = recipe_tensor("op/attn/q", heads * T * D, seed, shift);
    float *k = recipe_tensor("op/attn/k", heads * T * D, seed, shift);
    float *v = recipe_tensor("op/attn/v", heads * T * E, seed, shift);
    float *g = recipe_tensor("op/attn/g", heads * T * E, seed, shift);
    float *out = calloc((size_t)(heads * T * E), sizeof *out);
    float *dq = calloc((size_t)(heads * T * D), sizeof *dq);
    float *dk = calloc((size_t)(heads * T * D), sizeof *dk);
    float *dv = calloc((size_t)(heads * T * E), sizeof *dv);
    float *lse = calloc((size_t)(heads * T), sizeof *lse);
    const oct_attention_view q_view = view_of(q, T, D), k_view = view_of(k, T, D),
                             v_view = view_of(v, T, E), g_view = view_of(g, T, E),
                             out_view = view_of(out, T, E), dq_view = view_of(dq, T, D),
                             dk_view = view_of(dk, T, D), dv_view = view_of(dv, T, E);

    oct_kernels kernels;
    oct_kernels_init(&kernels, isa);
    oct_arena scratch;
    oct_arena_init(&scratch, "scratch");
    const oct_exec exec = {.kernels = &kernels, .threads = 1, .scratch = &scratch};
    oct_err err = {0};
    assert_int_equal(oct_attention(&exec, &shape, &q_view, &k_view, &v_view, &out_view, lse, &err),
                     OCT_OK);
    assert_int_equal(oct_attention_backward(&exec, &shape, &q_view, &k_view, &v_view, &out_view,
                                            lse, &g_view, &dq_view, &dk_view, &dv_view, &err),
                     OCT_OK);
    assert_matches("y", out, heads * T, E, json_object_get(golden, "y"));
    assert_matches("dq", dq, heads * T, D, json_object_get(golden, "dq"));
    assert_matches("dk", dk, heads * T, D, json_object_get(golden, "dk"));
    assert_matches("dv", dv, heads * T, E, json_object_get(golden, "dv"));

    oct_arena_release(&scratch);
    float *const all[] = {q, k, v, g, out, dq, dk, dv, lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void attention__golden_ops__within_1e_5(void **state)
{
    (void)state;
    const char *directory = getenv("OCTET_GOLDEN");
    assert_non_null(directory);
    char path[4096];
    snprintf(path, sizeof path, "%s/model/ops.json", directory);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    int cases = 0;
    size_t i;
    json_t *golden;
    json_array_foreach(json_object_get(root, "cases"), i, golden)
    {
        if (strcmp(json_string_value(json_object_get(golden, "op")), "attention") != 0)
            continue;
        for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
            run_case(golden, (uint64_t)integer(root, "seed"), (oct_isa)isa);
        cases++;
    }
    json_decref(root);
    assert_true(cases > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention__golden_ops__within_1e_5),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
