/* Inputs of golden/model by the recipe of its README, and comparison with the records of ops.json.
 * Include cmocka.h before. */
#ifndef OCT_TESTS_GOLDEN_OPS_H
#define OCT_TESTS_GOLDEN_OPS_H

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t golden_mix64(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* v(name, i, seed): -131070 .. 131070. */
static inline double golden_value(const char *name, uint64_t i, uint64_t seed)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (const char *s = name; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001B3u;
    const uint64_t u = golden_mix64(golden_mix64(h ^ golden_mix64(seed)) + i);
    const uint64_t sum = (u & 0xffffu) + (u >> 16 & 0xffffu) + (u >> 32 & 0xffffu) + (u >> 48);
    return (double)((int64_t)sum - 131070);
}

/* x[i] = offset + v * 2^-shift, i < n. */
static inline void golden_fill(float *x, int64_t n, const char *name, uint64_t seed, double offset,
                               int shift)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(offset + ldexp(golden_value(name, (uint64_t)i, seed), -shift));
}

static inline int64_t golden_int(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("golden key '%s': no integer", key);
    return (int64_t)json_integer_value(value);
}

static inline double golden_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("golden key '%s': no number", key);
    return json_number_value(value);
}

static inline void golden_near(const char *what, int64_t at, double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%s[%lld] = %.9g, golden %.9g, bound %.3g", what, (long long)at, got, want, bound);
}

/* sums[i] against an array of numbers, within 1e-5 of the larger of `largest` and its largest. */
static inline void golden_sums_near(const char *what, const double *sums, int64_t n,
                                    const json_t *golden, double largest)
{
    if ((int64_t)json_array_size(golden) != n)
        fail_msg("%s: %zu golden values, %lld computed", what, json_array_size(golden),
                 (long long)n);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(json_number_value(json_array_get(golden, (size_t)i))));
    for (int64_t i = 0; i < n; i++)
        golden_near(what, i, sums[i], json_number_value(json_array_get(golden, (size_t)i)),
                    1e-5 * largest);
}

/* x [rows, cols] against the record `key` of `object` (shape, l2, row_sum, col_sum, first). */
static inline void golden_matches(const json_t *object, const char *key, const float *x,
                                  int64_t rows, int64_t cols)
{
    const json_t *record = json_object_get(object, key);
    if (!json_is_object(record))
        fail_msg("golden record '%s' is missing", key);
    double largest = 0.0, squares = 0.0;
    double *row_sum = calloc((size_t)rows, sizeof *row_sum);
    double *col_sum = calloc((size_t)cols, sizeof *col_sum);
    assert_non_null(row_sum);
    assert_non_null(col_sum);
    for (int64_t i = 0; i < rows * cols; i++) {
        largest = fmax(largest, fabs((double)x[i]));
        squares += (double)x[i] * (double)x[i];
        row_sum[i / cols] += (double)x[i];
        col_sum[i % cols] += (double)x[i];
    }
    const json_t *first = json_object_get(record, "first");
    for (size_t i = 0; i < json_array_size(first); i++)
        golden_near(key, (int64_t)i, (double)x[i], json_number_value(json_array_get(first, i)),
                    1e-5 * largest);
    golden_sums_near(key, row_sum, rows, json_object_get(record, "row_sum"), largest);
    golden_sums_near(key, col_sum, cols, json_object_get(record, "col_sum"), largest);
    const double l2 = golden_number(record, "l2");
    golden_near(key, 0, sqrt(squares), l2, 1e-5 * l2);
    free(row_sum);
    free(col_sum);
}

#endif
