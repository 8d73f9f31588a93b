#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/arena.h"
#include "base/rng.h"

/* Under AddressSanitizer malloc fails for absurd sizes, as it does without. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void *take(oct_arena *arena, size_t bytes)
{
    void *memory = NULL;
    oct_err err = {0};
    assert_int_equal(oct_arena_alloc(arena, bytes, &memory, &err), OCT_OK);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % OCT_ARENA_ALIGN, 0);
    return memory;
}

static void alloc__many_sizes__aligned_and_apart(void **state)
{
    (void)state;
    enum { COUNT = 400 };
    oct_arena arena;
    oct_arena_init(&arena, "test");
    const oct_rng rng = oct_rng_stream(3, "arena");
    unsigned char *pieces[COUNT];
    size_t sizes[COUNT], total = 0;
    for (int i = 0; i < COUNT; i++) {
        sizes[i] = (size_t)oct_rng_below(rng, (uint64_t)i, i % 50 ? 5000 : 3000000);
        pieces[i] = take(&arena, sizes[i]);
        memset(pieces[i], i, sizes[i]);
        total += (sizes[i] + 63) / 64 * 64;
    }
    assert_int_equal(arena.used_bytes, total);
    assert_int_equal(arena.peak_bytes, total);
    for (int i = 0; i < COUNT; i++) {
        for (size_t j = 0; j < sizes[i]; j++)
            assert_true(pieces[i][j] == (unsigned char)i);
    }
    oct_arena_release(&arena);
    assert_int_equal(arena.used_bytes, 0);
}

static void rewind__nested_marks__give_the_same_memory_again(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test");
    const oct_arena_mark empty = oct_arena_save(&arena);
    char *kept = take(&arena, 100);
    strcpy(kept, "kept");
    const oct_arena_mark outer = oct_arena_save(&arena);
    void *first = take(&arena, 700);
    const oct_arena_mark inner = oct_arena_save(&arena);
    void *second = take(&arena, 5 << 20); /* a block of its own */
    oct_arena_rewind(&arena, inner);
    assert_int_equal(arena.used_bytes, 128 + 704);
    assert_ptr_equal(take(&arena, 5 << 20), second);
    oct_arena_rewind(&arena, outer);
    assert_ptr_equal(take(&arena, 700), first);
    assert_string_equal(kept, "kept");
    oct_arena_rewind(&arena, empty);
    assert_int_equal(arena.used_bytes, 0);
    assert_ptr_equal(take(&arena, 100), kept);
    oct_arena_release(&arena);
}

static void arena_trim__a_part_kept__the_rest_handed_out_again(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test");
    (void)take(&arena, 100);
    char *last = take(&arena, 1000);
    oct_arena_trim(&arena, last, 65);
    assert_int_equal(arena.used_bytes, 128 + 128);
    assert_int_equal(arena.peak_bytes, 128 + 1024);
    assert_ptr_equal(take(&arena, 1), last + 128);
    last = take(&arena, 5 << 20); /* a block of its own */
    oct_arena_trim(&arena, last, 0);
    assert_int_equal(arena.used_bytes, 128 + 128 + 64);
    assert_ptr_equal(take(&arena, 1), last);
    oct_arena_release(&arena);
}

static void step(oct_arena *arena, const oct_rng rng)
{
    for (uint64_t i = 0; i < 60; i++) {
        const oct_arena_mark mark = oct_arena_save(arena);
        (void)take(arena, (size_t)oct_rng_below(rng, 2 * i, 1 << 20));
        (void)take(arena, (size_t)oct_rng_below(rng, 2 * i + 1, 3 << 20));
        if (i % 3)
            oct_arena_rewind(arena, mark);
    }
}

static void reset__same_step_again__one_block_and_no_heap_call(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test");
    const oct_rng rng = oct_rng_stream(4, "arena");
    step(&arena, rng);
    oct_arena_reset(&arena);
    assert_int_equal(arena.used_bytes, 0);
    const uint64_t before = arena.heap_calls;
    step(&arena, rng);
    assert_int_equal(arena.heap_calls, before); /* the reset made one block of the peak */
    for (int i = 0; i < 3; i++) {
        oct_arena_reset(&arena);
        step(&arena, rng);
        assert_int_equal(arena.heap_calls, before);
    }
    oct_arena_release(&arena);
}

static void rewind__same_work_again__no_heap_call(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test");
    const oct_rng rng = oct_rng_stream(5, "arena");
    uint64_t calls = 0;
    for (int i = 0; i < 5; i++) {
        const oct_arena_mark mark = oct_arena_save(&arena);
        step(&arena, rng);
        oct_arena_rewind(&arena, mark);
        if (i == 1)
            calls = arena.heap_calls;
        if (i > 1)
            assert_int_equal(arena.heap_calls, calls);
    }
    oct_arena_release(&arena);
}

static void zalloc__dirty_memory__is_zero(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test");
    memset(take(&arena, 1000), 0xee, 1000);
    oct_arena_reset(&arena);
    void *memory = NULL;
    assert_int_equal(oct_arena_zalloc(&arena, 1000, &memory, NULL), OCT_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(((unsigned char *)memory)[i], 0);
    oct_arena_release(&arena);
}

/* Debug builds only: what nobody wrote reads as NaN, also where another's values were. */
#ifdef OCTET_POISON
static void assert_poisoned(const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(((const unsigned char *)memory)[i], 0xff);
}

static void alloc__debug_build__poisoned_before_use_and_after(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "scratch");
    void *memory = NULL;
    const oct_arena_mark start = oct_arena_save(&arena);
    assert_int_equal(oct_arena_alloc(&arena, 1000, &memory, NULL), OCT_OK);
    assert_poisoned(memory, 1000);
    memset(memory, 0, 1000);
    oct_arena_rewind(&arena, start);
    assert_poisoned(memory, 1000);
    oct_arena_release(&arena);
}
#endif

static void alloc__impossible_sizes__refused_by_name(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "scratch");
    void *memory = NULL;
    oct_err err = {0};
    assert_int_equal(oct_arena_alloc(&arena, SIZE_MAX, &memory, &err), OCT_E_NOMEM);
    assert_non_null(strstr(err.msg, "'scratch'"));
    assert_int_equal(oct_arena_alloc(&arena, SIZE_MAX / 4, &memory, &err), OCT_E_NOMEM);
    assert_int_equal(oct_arena_array(&arena, INT64_MAX, 8, &memory, &err), OCT_E_NOMEM);
    assert_int_equal(oct_arena_array(&arena, -1, 8, &memory, &err), OCT_E_NOMEM);
    assert_int_equal(oct_arena_array(&arena, 0, 8, &memory, &err), OCT_OK);
    assert_non_null(memory);
    assert_int_equal(arena.used_bytes, 0);
    oct_arena_release(&arena);
}

static void arena_init_fixed__any_alignment__serves_its_memory_and_no_more(void **state)
{
    (void)state;
    oct_err err = {0};
    enum { ROOM = OCT_ARENA_FIXED_BYTES + 4 * OCT_ARENA_ALIGN };
    unsigned char memory[ROOM + 64 + 1];
    for (size_t offset = 0; offset < 64; offset += 9) {
        oct_arena arena;
        void *a = NULL, *b = NULL, *c = NULL;
        memory[offset + ROOM] = 0x5a;
        oct_arena_init_fixed(&arena, "fixed", memory + offset, ROOM);
        assert_int_equal(oct_arena_alloc(&arena, 65, &a, &err), OCT_OK);
        const oct_arena_mark mark = oct_arena_save(&arena);
        assert_int_equal(oct_arena_alloc(&arena, 128, &b, &err), OCT_OK);
        memset(b, 1, 128);
        assert_int_equal((uintptr_t)b % OCT_ARENA_ALIGN, 0);
        assert_true((unsigned char *)b + 128 <= memory + offset + ROOM);
        assert_int_equal(oct_arena_alloc(&arena, 65, &c, &err), OCT_E_NOMEM);
        assert_non_null(strstr(err.msg, "fixed"));
        oct_arena_rewind(&arena, mark);
        assert_int_equal(oct_arena_alloc(&arena, 128, &c, &err), OCT_OK);
        assert_ptr_equal(b, c);
        oct_arena_reset(&arena);
        assert_int_equal(oct_arena_alloc(&arena, 1, &c, &err), OCT_OK);
        assert_ptr_equal(a, c);
        assert_int_equal(oct_arena_reserve(&arena, ROOM, &err), OCT_E_NOMEM);
        assert_int_equal(arena.heap_calls, 0);
        assert_int_equal(memory[offset + ROOM], 0x5a);
        oct_arena_release(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_trim__a_part_kept__the_rest_handed_out_again),
        cmocka_unit_test(arena_init_fixed__any_alignment__serves_its_memory_and_no_more),
        cmocka_unit_test(alloc__many_sizes__aligned_and_apart),
        cmocka_unit_test(rewind__nested_marks__give_the_same_memory_again),
        cmocka_unit_test(reset__same_step_again__one_block_and_no_heap_call),
        cmocka_unit_test(rewind__same_work_again__no_heap_call),
        cmocka_unit_test(zalloc__dirty_memory__is_zero),
#ifdef OCTET_POISON
        cmocka_unit_test(alloc__debug_build__poisoned_before_use_and_after),
#endif
        cmocka_unit_test(alloc__impossible_sizes__refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
