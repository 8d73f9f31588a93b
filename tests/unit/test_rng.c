#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

/* Known answers of Philox4x32-10 for counter 0 and key 0 (Random123, kat_vectors). */
static void block__zero_counter_and_key__known_answer(void **state)
{
    (void)state;
    uint32_t words[4];
    oct_rng_block((oct_rng){.key = 0}, 0, words);
    assert_int_equal(words[0], 0x6627e8d5);
    assert_int_equal(words[1], 0xe169c58d);
    assert_int_equal(words[2], 0xbc57ac4c);
    assert_int_equal(words[3], 0x9b00dbd8);
}

static void stream__other_seed_or_name__other_key(void **state)
{
    (void)state;
    const uint64_t key = oct_rng_stream(1, "a.b").key;
    assert_int_equal(oct_rng_stream(1, "a.b").key, key);
    assert_int_not_equal(oct_rng_stream(2, "a.b").key, key);
    assert_int_not_equal(oct_rng_stream(1, "a.c").key, key);
    assert_int_not_equal(oct_rng_stream(1, "").key, oct_rng_stream(0, "").key);
}

static void u64__index__is_half_of_a_block(void **state)
{
    (void)state;
    const oct_rng rng = oct_rng_stream(9, "x");
    for (uint64_t counter = 0; counter < 100; counter++) {
        uint32_t words[4];
        oct_rng_block(rng, counter, words);
        assert_true(oct_rng_u64(rng, 2 * counter) == ((uint64_t)words[1] << 32 | words[0]));
        assert_true(oct_rng_u64(rng, 2 * counter + 1) == ((uint64_t)words[3] << 32 | words[2]));
    }
    assert_true(oct_rng_u64(rng, UINT64_MAX) != oct_rng_u64(rng, UINT64_MAX - 2));
}

static void below__any_bound__in_range_and_even(void **state)
{
    (void)state;
    const oct_rng rng = oct_rng_stream(9, "y");
    int counts[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) {
        assert_true(oct_rng_below(rng, i, 1) == 0);
        counts[oct_rng_below(rng, i, 7)]++;
        assert_true(oct_rng_below(rng, i, UINT64_MAX) < UINT64_MAX);
    }
    for (int i = 0; i < 7; i++) /* sigma is 93 */
        assert_in_range(counts[i], 9500, 10500);
}

static void uniform__many__in_range_with_mean_and_variance(void **state)
{
    (void)state;
    const oct_rng rng = oct_rng_stream(9, "z");
    double sum = 0.0, squares = 0.0;
    for (uint64_t i = 0; i < 100000; i++) {
        const double u = oct_rng_uniform(rng, i);
        assert_true(u >= 0.0 && u < 1.0);
        sum += u;
        squares += (u - 0.5) * (u - 0.5);
    }
    assert_true(sum / 1e5 > 0.495 && sum / 1e5 < 0.505);
    assert_true(squares / 1e5 > 1.0 / 12.5 && squares / 1e5 < 1.0 / 11.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block__zero_counter_and_key__known_answer),
        cmocka_unit_test(stream__other_seed_or_name__other_key),
        cmocka_unit_test(u64__index__is_half_of_a_block),
        cmocka_unit_test(below__any_bound__in_range_and_even),
        cmocka_unit_test(uniform__many__in_range_with_mean_and_variance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
