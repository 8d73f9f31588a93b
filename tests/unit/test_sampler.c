#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "data/sampler.h"

static void sampler_at__any_size__each_sample_once_per_epoch(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4096, 4097, 65537};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int64_t n = sizes[i];
        unsigned char *seen = malloc((size_t)n);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            const oct_sampler sampler = {.seed = 2026, .samples = n, .shuffle = true};
            memset(seen, 0, (size_t)n);
            for (int64_t p = 0; p < n; p++) {
                const int64_t sample = oct_sampler_at(&sampler, epoch * n + p);
                assert_in_range(sample, 0, n - 1);
                assert_int_equal(seen[sample]++, 0);
            }
        }
        free(seen);
    }
}

static void sampler_at__no_shuffle__identity_in_every_epoch(void **state)
{
    (void)state;
    const oct_sampler sampler = {.seed = 1, .samples = 10, .shuffle = false};
    for (int64_t p = 0; p < 35; p++)
        assert_int_equal(oct_sampler_at(&sampler, p), p % 10);
}

static int64_t equal_positions(oct_sampler a, int64_t from_a, oct_sampler b, int64_t from_b)
{
    int64_t equal = 0;
    for (int64_t p = 0; p < a.samples; p++)
        equal += oct_sampler_at(&a, from_a + p) == oct_sampler_at(&b, from_b + p);
    return equal;
}

/* Two random orders of 1000 agree in one position on average. */
static void sampler_at__other_seed_or_epoch__other_order(void **state)
{
    (void)state;
    const oct_sampler a = {.seed = 1, .samples = 1000, .shuffle = true};
    const oct_sampler b = {.seed = 2, .samples = 1000, .shuffle = true};
    const oct_sampler file_order = {.seed = 1, .samples = 1000, .shuffle = false};
    assert_true(equal_positions(a, 0, b, 0) < 10);
    assert_true(equal_positions(a, 0, a, 1000) < 10);
    assert_true(equal_positions(a, 0, file_order, 0) < 10);
    assert_int_equal(equal_positions(a, 0, a, 0), 1000);
}

/* Over many epochs each sample comes first about equally often: 8 samples, 8000 epochs, so 1000
 * each with a deviation of 30. */
static void sampler_at__many_epochs__first_sample_uniform(void **state)
{
    (void)state;
    const oct_sampler sampler = {.seed = 5, .samples = 8, .shuffle = true};
    int64_t first[8] = {0};
    for (int64_t epoch = 0; epoch < 8000; epoch++)
        first[oct_sampler_at(&sampler, 8 * epoch)]++;
    for (int i = 0; i < 8; i++)
        assert_in_range(first[i], 800, 1200);
}

static void sampler_at__huge_counts__in_range(void **state)
{
    (void)state;
    const int64_t n = INT64_MAX;
    const oct_sampler sampler = {.seed = 5, .samples = n, .shuffle = true};
    for (int64_t p = n - 100; p < n; p++) {
        const int64_t sample = oct_sampler_at(&sampler, p);
        assert_true(sample >= 0 && sample < n);
    }
}

/* The order is part of what a checkpoint promises: it must not change between versions. */
static void sampler_at__pinned_order(void **state)
{
    (void)state;
    const oct_sampler sampler = {.seed = 2026, .samples = 10, .shuffle = true};
    static const int64_t order[10] = {9, 5, 4, 2, 0, 1, 8, 3, 7, 6};
    for (int64_t p = 0; p < 10; p++)
        assert_int_equal(oct_sampler_at(&sampler, p), order[p]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampler_at__any_size__each_sample_once_per_epoch),
        cmocka_unit_test(sampler_at__no_shuffle__identity_in_every_epoch),
        cmocka_unit_test(sampler_at__other_seed_or_epoch__other_order),
        cmocka_unit_test(sampler_at__many_epochs__first_sample_uniform),
        cmocka_unit_test(sampler_at__huge_counts__in_range),
        cmocka_unit_test(sampler_at__pinned_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
