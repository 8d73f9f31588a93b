/* What lives, the peaks, arenas in a ledger, and no memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/arena.h"
#include "base/fault.h"
#include "base/ledger.h"

/* Under AddressSanitizer malloc fails for absurd sizes, as it does without. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void *take(oct_ledger *ledger, oct_ledger_category category, size_t bytes)
{
    void *memory = NULL;
    oct_err err = {0};
    if (oct_ledger_alloc(ledger, category, bytes, "test", &memory, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 64, 0);
    memset(memory, 0xa5, bytes);
    return memory;
}

/* Totals as required, and those of the categories' sums. */
static void check(const oct_ledger *ledger, int64_t live, int64_t peak)
{
    int64_t lives = 0, peaks = 0;
    for (int c = 0; c < OCT_LEDGER_CATEGORIES; c++) {
        lives += ledger->live_bytes[c];
        peaks += ledger->peak_bytes[c];
        assert_true(ledger->live_bytes[c] >= 0);
        assert_true(ledger->peak_bytes[c] >= ledger->live_bytes[c]);
    }
    assert_int_equal(lives, live);
    assert_int_equal(ledger->live_bytes_all, live);
    assert_int_equal(ledger->peak_bytes_all, peak);
    assert_true(peaks >= peak);
}

static void alloc__several_categories__live_and_peaks(void **state)
{
    (void)state;
    oct_ledger ledger = {0};
    check(&ledger, 0, 0);
    void *a = take(&ledger, OCT_LEDGER_MASTER, 1000);
    void *b = take(&ledger, OCT_LEDGER_MASTER, 1);
    void *c = take(&ledger, OCT_LEDGER_MOMENTS, 70);
    check(&ledger, 1071, 1071);
    assert_int_equal(ledger.live_bytes[OCT_LEDGER_MASTER], 1001);
    oct_ledger_free(&ledger, a);
    check(&ledger, 71, 1071);
    void *d = take(&ledger, OCT_LEDGER_UNSHARDED, 500);
    check(&ledger, 571, 1071); /* the peaks of the categories were not at one moment */
    assert_int_equal(ledger.peak_bytes[OCT_LEDGER_MASTER], 1001);
    assert_int_equal(ledger.peak_bytes[OCT_LEDGER_UNSHARDED], 500);
    void *e = take(&ledger, OCT_LEDGER_OTHER, 0);
    check(&ledger, 571, 1071);
    oct_ledger_free(&ledger, e);
    oct_ledger_free(&ledger, d);
    oct_ledger_free(&ledger, b);
    oct_ledger_free(&ledger, c);
    oct_ledger_free(&ledger, NULL);
    check(&ledger, 0, 1071);
    assert_int_equal(ledger.peak_bytes[OCT_LEDGER_MOMENTS], 70);
}

static void alloc__without_ledger__is_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 1 << 20};
    void *all[7];
    for (int i = 0; i < 7; i++)
        all[i] = take(NULL, OCT_LEDGER_OTHER, sizes[i]);
    for (int i = 0; i < 7; i++) {
        const unsigned char *bytes = all[i];
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(bytes[k], 0xa5);
        oct_ledger_free(NULL, all[i]);
    }
    oct_ledger_add(NULL, OCT_LEDGER_OTHER, 1);
    oct_ledger_remove(NULL, OCT_LEDGER_OTHER, 1);
}

static void zalloc__after_dirty_memory__is_zero(void **state)
{
    (void)state;
    oct_ledger ledger = {0};
    for (size_t bytes = 1; bytes < 3000; bytes += 97) {
        oct_ledger_free(&ledger, take(&ledger, OCT_LEDGER_OTHER, bytes));
        void *memory = NULL;
        oct_err err = {0};
        assert_int_equal(oct_ledger_zalloc(&ledger, OCT_LEDGER_OTHER, bytes, "test", &memory, &err),
                         OCT_OK);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t k = 0; k < bytes; k++)
            assert_int_equal(((unsigned char *)memory)[k], 0);
        oct_ledger_free(&ledger, memory);
    }
    check(&ledger, 0, ledger.peak_bytes[OCT_LEDGER_OTHER]);
}

static void alloc__no_memory__names_category_what_and_bytes(void **state)
{
    (void)state;
    oct_ledger ledger = {0};
    oct_err err = {0};
    void *memory = NULL, *kept = take(&ledger, OCT_LEDGER_MASTER, 321);
    assert_int_equal(oct_fault_arm("ledger.alloc", 1, OCT_FAULT_FAIL, &err), OCT_OK);
    assert_int_equal(
        oct_ledger_zalloc(&ledger, OCT_LEDGER_MOMENTS, 88, "model.norm.weight", &memory, &err),
        OCT_E_NOMEM);
    assert_string_equal(err.msg, "cannot get memory for 'model.norm.weight' (moments): 321 bytes "
                                 "are in use, 88 more are required");
    oct_fault_disarm_all();
    static const size_t absurd[] = {SIZE_MAX, SIZE_MAX - 100, SIZE_MAX / 2, SIZE_MAX / 4};
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        assert_int_equal(
            oct_ledger_alloc(&ledger, OCT_LEDGER_STAGING, absurd[i], "gradient", &memory, &err),
            OCT_E_NOMEM);
        assert_int_equal(
            oct_ledger_alloc(NULL, OCT_LEDGER_STAGING, absurd[i], "gradient", &memory, &err),
            OCT_E_NOMEM);
        assert_non_null(strstr(err.msg, "'gradient' (staging)"));
    }
    assert_null(memory);
    check(&ledger, 321, 321);
    oct_ledger_free(&ledger, kept);
}

static void *from_arena(oct_arena *arena, size_t bytes)
{
    void *memory = NULL;
    oct_err err = {0};
    assert_int_equal(oct_arena_alloc(arena, bytes, &memory, &err), OCT_OK);
    return memory;
}

/* Blocks count as they are, through growth, reset to one block, reserve and release. */
static void arena__attached__its_blocks_count(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    oct_ledger ledger = {0};
    oct_arena arena;
    oct_err err = {0};
    oct_arena_init(&arena, "test");
    (void)from_arena(&arena, 100);
    oct_arena_attach(&arena, &ledger, OCT_LEDGER_ACTIVATIONS);
    check(&ledger, MIB, MIB);
    (void)from_arena(&arena, 3 * MIB);
    check(&ledger, 4 * MIB, 4 * MIB);
    oct_arena_reset(&arena); /* both blocks become one of 3 MiB and 128 bytes */
    check(&ledger, 3 * MIB + 128, 4 * MIB);
    (void)from_arena(&arena, 2 * MIB);
    check(&ledger, 3 * MIB + 128, 4 * MIB);
    assert_int_equal(oct_arena_reserve(&arena, 8 * MIB, &err), OCT_OK);
    check(&ledger, 8 * MIB, 8 * MIB);
    assert_int_equal(ledger.peak_bytes[OCT_LEDGER_ACTIVATIONS], 8 * MIB);
    oct_arena_attach(&arena, &ledger, OCT_LEDGER_OTHER);
    assert_int_equal(ledger.live_bytes[OCT_LEDGER_ACTIVATIONS], 0);
    assert_int_equal(ledger.live_bytes[OCT_LEDGER_OTHER], 8 * MIB);
    oct_arena_release(&arena);
    check(&ledger, 0, 8 * MIB);
    (void)from_arena(&arena, 1); /* still attached */
    check(&ledger, MIB, 8 * MIB);
    oct_arena_attach(&arena, NULL, OCT_LEDGER_OTHER);
    check(&ledger, 0, 8 * MIB);
    oct_arena_release(&arena);
    check(&ledger, 0, 8 * MIB);
}

static void arena__fixed__is_its_owners(void **state)
{
    (void)state;
    static unsigned char memory[4096];
    oct_ledger ledger = {0};
    oct_arena arena;
    oct_arena_init_fixed(&arena, "test", memory, sizeof memory);
    oct_arena_attach(&arena, &ledger, OCT_LEDGER_ACTIVATIONS);
    (void)from_arena(&arena, 100);
    oct_arena_release(&arena);
    check(&ledger, 0, 0);
}

/* The keys of bytes_per_rank in the plan, and one that the plan does not have. */
static void category_name__each__is_the_key_of_the_plan(void **state)
{
    (void)state;
    static const char *const keys[] = {"master",         "moments", "gradients", "low_precision",
                                       "high_precision", "staging", "unsharded", "panels",
                                       "activations",    "other"};
    assert_int_equal(sizeof keys / sizeof *keys, OCT_LEDGER_CATEGORIES);
    for (int c = 0; c < OCT_LEDGER_CATEGORIES; c++)
        assert_string_equal(oct_ledger_category_name((oct_ledger_category)c), keys[c]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc__several_categories__live_and_peaks),
        cmocka_unit_test(alloc__without_ledger__is_memory),
        cmocka_unit_test(zalloc__after_dirty_memory__is_zero),
        cmocka_unit_test(alloc__no_memory__names_category_what_and_bytes),
        cmocka_unit_test(arena__attached__its_blocks_count),
        cmocka_unit_test(arena__fixed__is_its_owners),
        cmocka_unit_test(category_name__each__is_the_key_of_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
