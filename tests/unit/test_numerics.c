/* Layered numerics against the frozen table: products, experts and one layer; that a figure which
 * leaves it is noticed; and the sums themselves. OCTET_UPDATE=1 writes the table's rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/temp_dir.h"
#include "verify/numerics.h"

static oct_numerics *measure(uint64_t seed)
{
    oct_numerics *n = calloc(1, sizeof *n);
    oct_err err = {0};
    const temp_dir dir = temp_dir_create();
    assert_non_null(n);
    n->seed = seed;
    if (oct_numerics_products(n, &err) != OCT_OK ||
        oct_numerics_layers(n, dir.path, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    temp_dir_remove(&dir);
    return n;
}

/* --- the table -------------------------------------------------------------------------------- */

static bool same(const oct_numerics_row *a, const oct_numerics_row *b)
{
    return !strcmp(a->op, b->op) && !strcmp(a->data, b->data) && !strcmp(a->format, b->format) &&
           !strcmp(a->tensor, b->tensor);
}

static void print_table(void)
{
    oct_numerics *seeds[OCT_NUMERICS_SEEDS];
    for (int s = 0; s < OCT_NUMERICS_SEEDS; s++)
        seeds[s] = measure((uint64_t)s + 1);
    for (int i = 0; i < seeds[0]->count; i++) {
        const oct_numerics_row *row = &seeds[0]->rows[i];
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen = seen || same(&seeds[0]->rows[k], row);
        if (seen)
            continue;
        double least = row->nrmse, most = row->nrmse, cosine = row->cosine, peak = row->peak;
        for (int s = 0; s < OCT_NUMERICS_SEEDS; s++)
            for (int k = 0; k < seeds[s]->count; k++) {
                const oct_numerics_row *other = &seeds[s]->rows[k];
                if (!same(other, row))
                    continue;
                least = fmin(least, other->nrmse);
                most = fmax(most, other->nrmse);
                cosine = fmin(cosine, other->cosine);
                peak = fmax(peak, other->peak);
            }
        printf("    {\"%s\", \"%s\", \"%s\", \"%s\", %.4g, %.4g, %.8f, %.4g},\n", row->op,
               row->data, row->format, row->tensor, least, most, cosine, peak);
    }
    for (int s = 0; s < OCT_NUMERICS_SEEDS; s++)
        free(seeds[s]);
}

static void figures__every_row__inside_the_frozen_limits(void **state)
{
    oct_numerics *n = *state;
    int failures = 0;
    for (int i = 0; i < n->count; i++)
        if (n->rows[i].left) {
            char text[400];
            oct_numerics_text(&n->rows[i], text, sizeof text);
            print_error("%s\n", text);
            failures++;
        }
    assert_int_equal(oct_numerics_failures(n), failures);
    assert_int_equal(failures, 0);
}

/* Every frozen row is measured, and the other way round (judge fails without a row). */
static void table__every_limit__is_used(void **state)
{
    const oct_numerics *n = *state;
    for (int l = 0; l < oct_numerics_limit_count; l++) {
        bool used = false;
        for (int i = 0; i < n->count; i++)
            used = used || n->rows[i].limit == &oct_numerics_limits[l];
        if (!used)
            fail_msg("nothing measures %s %s %s %s", oct_numerics_limits[l].op,
                     oct_numerics_limits[l].data, oct_numerics_limits[l].format,
                     oct_numerics_limits[l].tensor);
    }
}

/* All that 17.3.2 asks for is among the rows. */
static void rows__coverage__ops_data_formats_tensors(void **state)
{
    static const char *const ops[] = {"dense", "grouped", "experts"};
    static const char *const data[] = {"gaussian", "lognormal", "outlier"};
    static const char *const formats[] = {"mxfp8_e4m3", "hif8"};
    static const char *const tensors[] = {"output", "dinput", "dweight"};
    const oct_numerics *n = *state;
    for (int o = 0; o < 3; o++)
        for (int d = 0; d < 3; d++)
            for (int f = 0; f < 2; f++)
                for (int t = 0; t < 3; t++) {
                    int found = 0;
                    for (int i = 0; i < n->count; i++) {
                        const oct_numerics_row *r = &n->rows[i];
                        found += !strcmp(r->op, ops[o]) && !strcmp(r->data, data[d]) &&
                                 !strcmp(r->format, formats[f]) &&
                                 !strncmp(r->tensor, tensors[t], strlen(tensors[t]));
                    }
                    assert_true(found >= 2); /* several sizes */
                }
}

static void layers__three_formats__loss_and_norm(void **state)
{
    const oct_numerics *n = *state;
    assert_int_equal(n->layer_count, 2);
    for (int l = 0; l < 2; l++) {
        const oct_numerics_layer *layer = &n->layers[l];
        assert_int_equal(layer->formats, 3);
        for (int f = 0; f < 3; f++) {
            assert_true(fabs(layer->loss[f] - log(257.0)) < 0.2);
            assert_true(isfinite(layer->grad_norm[f]) && layer->grad_norm[f] > 0.0);
            if (f > 0) /* another format, other bits */
                assert_true(layer->grad_norm[f] != layer->grad_norm[0]);
        }
    }
}

/* --- the judge -------------------------------------------------------------------------------- */

static oct_numerics_row a_row(const oct_numerics *n, const char *tensor)
{
    for (int i = 0; i < n->count; i++)
        if (!strcmp(n->rows[i].tensor, tensor) && !strcmp(n->rows[i].format, "hif8"))
            return n->rows[i];
    fail_msg("no row '%s'", tensor);
    return n->rows[0];
}

static void judge__figure_leaves__named(void **state)
{
    const oct_numerics *n = *state;
    oct_numerics_row row = a_row(n, "dinput");
    oct_numerics_judge(&row);
    assert_null(row.left);

    row.nrmse = 1.3 * row.limit->nrmse_most;
    oct_numerics_judge(&row);
    assert_string_equal(row.left, "NRMSE");
    row = a_row(n, "dinput");
    row.nrmse = 0.7 * row.limit->nrmse_least; /* too good: not made in 8 bits */
    oct_numerics_judge(&row);
    assert_string_equal(row.left, "NRMSE");
    row = a_row(n, "dinput");
    row.nrmse = (double)NAN;
    oct_numerics_judge(&row);
    assert_string_equal(row.left, "NRMSE");
    row = a_row(n, "dinput");
    row.cosine = 1.0 - 1.6 * (1.0 - row.limit->cosine_least);
    oct_numerics_judge(&row);
    assert_string_equal(row.left, "cosine");
    row = a_row(n, "dinput");
    row.peak = 1.6 * row.limit->peak_most;
    oct_numerics_judge(&row);
    assert_string_equal(row.left, "peak");
    row = a_row(n, "dinput");
    row.nonfinite = 1;
    oct_numerics_judge(&row);
    assert_string_equal(row.left, "nonfinite");
    row = a_row(n, "dinput");
    row.op = "sparse";
    oct_numerics_judge(&row);
    assert_non_null(row.left);
    row = a_row(n, "loss");
    row.nrmse = 2.1 * row.limit->nrmse_most;
    oct_numerics_judge(&row);
    assert_string_equal(row.left, "NRMSE");
}

static void json__every_row__with_figures_and_limits(void **state)
{
    const oct_numerics *n = *state;
    json_t *all = oct_numerics_json(n);
    assert_non_null(all);
    assert_int_equal(json_array_size(json_object_get(all, "rows")), n->count);
    assert_int_equal(json_array_size(json_object_get(all, "layers")), 2);
    const json_t *first = json_array_get(json_object_get(all, "rows"), 0);
    static const char *const keys[] = {"max_abs", "mse",         "nrmse",      "cosine",
                                       "peak",    "nrmse_least", "nrmse_most", "cosine_least"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        assert_true(json_is_real(json_object_get(first, keys[k])));
    assert_true(json_is_integer(json_object_get(first, "nonfinite")));
    json_decref(all);
}

/* --- sums ------------------------------------------------------------------------------------- */

static void sums__known_pairs__exact(void **state)
{
    (void)state;
    oct_error_sums s = {0};
    assert_true(oct_error_sums_nrmse(&s) == 0.0 && oct_error_sums_mse(&s) == 0.0);
    oct_error_sums_add(&s, 3.0, 3.0, 0);
    oct_error_sums_add(&s, -4.0, -1.0, 1);
    assert_true(s.largest == 3.0 && s.largest_at == 1);
    assert_true(fabs(oct_error_sums_mse(&s) - 4.5) < 1e-15);
    assert_true(fabs(oct_error_sums_nrmse(&s) - 0.6) < 1e-15);
    assert_true(fabs(oct_error_sums_reference_rms(&s) - sqrt(12.5)) < 1e-15);
    assert_true(fabs(oct_error_sums_cosine(&s) - 13.0 / (5.0 * sqrt(10.0))) < 1e-15);
    oct_error_sums_add(&s, (double)NAN, (double)NAN, 2);
    oct_error_sums_add(&s, (double)INFINITY, 1.0, 3);
    assert_int_equal(s.nan[0] + s.nan[1], 2);
    assert_int_equal(s.inf[0], 1);
    assert_int_equal(s.nonfinite_different, 1);
    assert_int_equal(s.pairs, 2);
}

static void sums__squares_beyond_a_double__ratios_hold(void **state)
{
    (void)state;
    oct_error_sums s = {0};
    oct_error_sums_add(&s, 0x1p1000, 0x1p999, 0);
    oct_error_sums_add(&s, 0x1p-1000, -0x1p-1000, 1);
    assert_true(fabs(oct_error_sums_nrmse(&s) - 0.5) < 1e-15);
    assert_true(fabs(oct_error_sums_cosine(&s) - 1.0) < 1e-15);
}

static int measure_once(void **state)
{
    *state = measure(1);
    return 0;
}

static int forget(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
    if (getenv("OCTET_UPDATE")) {
        print_table();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures__every_row__inside_the_frozen_limits),
        cmocka_unit_test(table__every_limit__is_used),
        cmocka_unit_test(rows__coverage__ops_data_formats_tensors),
        cmocka_unit_test(layers__three_formats__loss_and_norm),
        cmocka_unit_test(judge__figure_leaves__named),
        cmocka_unit_test(json__every_row__with_figures_and_limits),
        cmocka_unit_test(sums__known_pairs__exact),
        cmocka_unit_test(sums__squares_beyond_a_double__ratios_hold),
    };
    return cmocka_run_group_tests(tests, measure_once, forget);
}
