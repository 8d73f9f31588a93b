/* The next token for logits whose probabilities are known: powers of two, so that every sum and
 * every boundary below is exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "trainer/sampling.h"

enum { VOCAB = 5 };

/* ln of a power of two; oct_expf of it is that power to within a few ulp, and `near` keeps every
 * draw and every top_p of these tests away from the boundaries by more. */
static float ln2(int power)
{
    return (float)((double)power * 0.69314718055994530942);
}

static const double near = 1.0e-5;

/* Probabilities 2/16, 8/16, 1/16, 4/16, 1/16: the order of likelihood is 1, 3, 0, 2, 4. */
static void fill(float logits[VOCAB])
{
    const int powers[VOCAB] = {1, 3, 0, 2, 0};
    for (int i = 0; i < VOCAB; i++)
        logits[i] = ln2(powers[i]) + 7.0f;
}

static int32_t sample(const float *logits, double temperature, double top_p, double uniform)
{
    oct_candidate work[VOCAB];
    return oct_sample_nucleus(logits, VOCAB, temperature, top_p, uniform, work);
}

/* Each of `ids` has the part of [0, 1) that `parts` says, in this order. */
static void assert_parts(const float *logits, double temperature, double top_p, int count,
                         const int32_t *ids, const double *parts)
{
    double begin = 0.0;
    for (int i = 0; i < count; i++) {
        const double end = begin + parts[i];
        assert_int_equal(sample(logits, temperature, top_p, begin == 0.0 ? 0.0 : begin + near),
                         ids[i]);
        assert_int_equal(sample(logits, temperature, top_p, 0.5 * (begin + end)), ids[i]);
        assert_int_equal(sample(logits, temperature, top_p, end - near), ids[i]);
        begin = end;
    }
    assert_true(fabs(begin - 1.0) < 1.0e-12);
    assert_int_equal(sample(logits, temperature, top_p, 1.0 - 0x1p-53), ids[count - 1]);
}

static void sample_greedy__tie__lowest_id(void **state)
{
    (void)state;
    const float tied[VOCAB] = {-3.0f, 2.0f, 1.0f, 2.0f, 2.0f};
    const float last[VOCAB] = {-3.0f, -2.0f, -9.0f, -2.5f, -1.0f};
    assert_int_equal(oct_sample_greedy(tied, VOCAB), 1);
    assert_int_equal(oct_sample_greedy(last, VOCAB), 4);
    assert_int_equal(oct_sample_greedy(tied, 1), 0);
}

static void sample_nucleus__whole_vocabulary__by_probability_then_by_id(void **state)
{
    (void)state;
    float logits[VOCAB];
    fill(logits);
    assert_parts(logits, 1.0, 1.0, 5, (const int32_t[]){1, 3, 0, 2, 4},
                 (const double[]){0.5, 0.25, 0.125, 0.0625, 0.0625});
}

/* 1/2 squares 8 : 4 : 2 : 1 : 1, and 2 takes the square roots of 8^2 : 4^2 : ... */
static void sample_nucleus__temperature__divides_the_logits(void **state)
{
    (void)state;
    float logits[VOCAB];
    fill(logits);
    assert_parts(logits, 0.5, 1.0, 5, (const int32_t[]){1, 3, 0, 2, 4},
                 (const double[]){64.0 / 86, 16.0 / 86, 4.0 / 86, 1.0 / 86, 1.0 / 86});
    for (int i = 0; i < VOCAB; i++)
        logits[i] = 2.0f * (logits[i] - 7.0f);
    assert_parts(logits, 2.0, 1.0, 5, (const int32_t[]){1, 3, 0, 2, 4},
                 (const double[]){0.5, 0.25, 0.125, 0.0625, 0.0625});
}

/* The set is the smallest that reaches top_p, and its parts are scaled to a whole. */
static void sample_nucleus__top_p__smallest_set_that_reaches_it(void **state)
{
    (void)state;
    float logits[VOCAB];
    fill(logits);
    const int32_t ids[] = {1, 3, 0, 2, 4};
    const struct {
        double top_p;
        int count;
    } cases[] = {
        {1.0e-6, 1},        {0.5 - near, 1},    {0.5 + near, 2},   {0.75 - near, 2},
        {0.75 + near, 3},   {0.875 - near, 3},  {0.875 + near, 4}, {0.9375 - near, 4},
        {0.9375 + near, 5}, {1.0 - 0x1p-53, 5}, {1.0, 5},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        static const double weights[] = {8.0, 4.0, 2.0, 1.0, 1.0};
        double sum = 0.0, parts[VOCAB];
        for (int i = 0; i < cases[c].count; i++)
            sum += weights[i];
        for (int i = 0; i < cases[c].count; i++)
            parts[i] = weights[i] / sum;
        assert_parts(logits, 1.0, cases[c].top_p, cases[c].count, ids, parts);
    }
}

/* Equal logits have weights of exactly 1, so that boundaries can be hit: a set that has exactly
 * top_p is complete, and a draw exactly between two tokens takes the second. */
static void sample_nucleus__exactly_on_a_boundary__closed_below(void **state)
{
    (void)state;
    oct_candidate work[4];
    const float equal[4] = {1.5f, 1.5f, 1.5f, 1.5f};
    const struct {
        double top_p, uniform;
        int32_t id;
    } cases[] = {
        {1.0, 0.0, 0},  {1.0, 0.25, 1},  {1.0, 0.5, 2},         {1.0, 0.75, 3},
        {0.5, 0.0, 0},  {0.5, 0.5, 1},   {0.5, 0.99, 1},        {0.25, 0.99, 0},
        {0.75, 0.9, 2}, {0.51, 0.99, 2}, {1.0, 1 - 0x1p-53, 3},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        assert_int_equal(oct_sample_nucleus(equal, 4, 1.0, cases[c].top_p, cases[c].uniform, work),
                         cases[c].id);
}

/* Many equal ones among others: an unstable sort would mix their ids. */
static void sample_nucleus__many_ties__ids_ascend(void **state)
{
    (void)state;
    enum { MANY = 400 };
    static float logits[MANY];
    static oct_candidate work[MANY];
    for (int i = 0; i < MANY; i++)
        logits[i] = i % 4 == 3 ? 0.0f : -200.0f; /* exp(-200) is 0 in FP32 */
    for (int k = 0; k < MANY / 4; k++)
        assert_int_equal(
            oct_sample_nucleus(logits, MANY, 1.0, 1.0, ((double)k + 0.5) / 100.0, work), 4 * k + 3);
}

static void sample_nucleus__tiny_temperature_or_one_token__the_likeliest(void **state)
{
    (void)state;
    float logits[VOCAB];
    fill(logits);
    assert_int_equal(sample(logits, 1.0e-300, 1.0, 1.0 - 0x1p-53 - 1.0e-9), 1);
    oct_candidate work[1];
    assert_int_equal(oct_sample_nucleus(logits, 1, 1.0, 1.0, 0.99, work), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_greedy__tie__lowest_id),
        cmocka_unit_test(sample_nucleus__whole_vocabulary__by_probability_then_by_id),
        cmocka_unit_test(sample_nucleus__temperature__divides_the_logits),
        cmocka_unit_test(sample_nucleus__top_p__smallest_set_that_reaches_it),
        cmocka_unit_test(sample_nucleus__exactly_on_a_boundary__closed_below),
        cmocka_unit_test(sample_nucleus__many_ties__ids_ascend),
        cmocka_unit_test(sample_nucleus__tiny_temperature_or_one_token__the_likeliest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
