#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/huge_pages.h"
#include "base/ledger.h"

/* More than any threshold below which the heap takes memory that it had before. */
enum { BYTES = 32 * OCT_HUGE_PAGE };

/* Whether the mapping that holds `address` is advised to use huge pages (flag "hg"). */
static bool is_advised(const void *address)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    char line[512];
    bool inside = false, advised = false;
    while (fgets(line, sizeof line, maps)) {
        uintptr_t first = 0, end = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) == 2)
            inside = (uintptr_t)address >= first && (uintptr_t)address < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            advised = strstr(line, " hg") != NULL;
    }
    (void)fclose(maps);
    return advised;
}

static bool system_has_them(void)
{
    FILE *setting = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (setting)
        (void)fclose(setting);
    return setting != NULL;
}

static void advise__large_arena_and_ledger_memory__on_huge_pages(void **state)
{
    (void)state;
    if (!system_has_them())
        skip();
    oct_arena arena;
    oct_arena_init(&arena, "test");
    void *memory = NULL;
    assert_int_equal(oct_arena_alloc(&arena, BYTES, &memory, NULL), OCT_OK);
    assert_true(is_advised((unsigned char *)memory + BYTES / 2));
    oct_arena_release(&arena);
    assert_int_equal(oct_ledger_zalloc(NULL, OCT_LEDGER_MASTER, BYTES, "w", &memory, NULL), OCT_OK);
    assert_true(is_advised((unsigned char *)memory + BYTES / 2));
    oct_ledger_free(NULL, memory);
}

static void advise__turned_off__no_huge_pages(void **state)
{
    (void)state;
    if (!system_has_them())
        skip();
    assert_int_equal(setenv("OCTET_HUGE_PAGES", "0", 1), 0);
    void *memory = NULL;
    assert_int_equal(oct_ledger_alloc(NULL, OCT_LEDGER_MASTER, BYTES, "w", &memory, NULL), OCT_OK);
    assert_false(is_advised((unsigned char *)memory + BYTES / 2));
    oct_ledger_free(NULL, memory);
    assert_int_equal(unsetenv("OCTET_HUGE_PAGES"), 0);
}

static void advise__any_bounds__contents_stay(void **state)
{
    (void)state;
    enum { FEW = 4 * OCT_HUGE_PAGE };
    unsigned char *memory = malloc(FEW);
    assert_non_null(memory);
    for (size_t i = 0; i < FEW; i++)
        memory[i] = (unsigned char)(i * 7);
    oct_huge_pages_advise(memory, 0);
    oct_huge_pages_advise(memory + 1, 100);
    oct_huge_pages_advise(memory + 13, FEW - 26);
    for (size_t i = 0; i < FEW; i++)
        if (memory[i] != (unsigned char)(i * 7))
            fail_msg("byte %zu changed", i);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advise__large_arena_and_ledger_memory__on_huge_pages),
        cmocka_unit_test(advise__turned_off__no_huge_pages),
        cmocka_unit_test(advise__any_bounds__contents_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
