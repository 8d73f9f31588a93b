#include "base/ledger.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/fault.h"
#include "base/huge_pages.h"
#include "base/size.h"

enum { ALIGN = 64 };

/* Stands in front of the memory that is handed out, in the ALIGN bytes before it. */
typedef struct block {
    void *base; /* what the heap gave */
    size_t bytes;
    oct_ledger_category category;
} block;

static const char *const names[OCT_LEDGER_CATEGORIES] = {
    [OCT_LEDGER_MASTER] = "master",
    [OCT_LEDGER_MOMENTS] = "moments",
    [OCT_LEDGER_GRADIENTS] = "gradients",
    [OCT_LEDGER_LOW_PRECISION] = "low_precision",
    [OCT_LEDGER_HIGH_PRECISION] = "high_precision",
    [OCT_LEDGER_STAGING] = "staging",
    [OCT_LEDGER_UNSHARDED] = "unsharded",
    [OCT_LEDGER_PANELS] = "panels",
    [OCT_LEDGER_ACTIVATIONS] = "activations",
    [OCT_LEDGER_OTHER] = "other",
};

const char *oct_ledger_category_name(oct_ledger_category category)
{
    return names[category];
}

void oct_ledger_add(oct_ledger *ledger, oct_ledger_category category, size_t bytes)
{
    if (!ledger)
        return;
    int64_t *live = &ledger->live_bytes[category], *peak = &ledger->peak_bytes[category];
    *live += (int64_t)bytes;
    *peak = oct_max_i64(*peak, *live);
    ledger->live_bytes_all += (int64_t)bytes;
    ledger->peak_bytes_all = oct_max_i64(ledger->peak_bytes_all, ledger->live_bytes_all);
}

void oct_ledger_remove(oct_ledger *ledger, oct_ledger_category category, size_t bytes)
{
    if (!ledger)
        return;
    ledger->live_bytes[category] -= (int64_t)bytes;
    ledger->live_bytes_all -= (int64_t)bytes;
}

/* NULL if there is none. Not aligned_alloc, as there is none that gives zeroed pages. */
static void *take(oct_ledger_category category, size_t bytes, bool zeroed)
{
    _Static_assert(sizeof(block) <= ALIGN, "the header has room");
    size_t whole = 0;
    if (!oct_size_add(bytes, 2 * ALIGN, &whole) || whole > SIZE_MAX / 2 ||
        oct_fault("ledger.alloc"))
        return NULL;
    unsigned char *base = zeroed ? calloc(1, whole) : malloc(whole);
    if (!base)
        return NULL;
    oct_huge_pages_advise(base, whole);
    unsigned char *memory = base + ALIGN + (-(uintptr_t)base & (ALIGN - 1));
    block *header = (block *)(void *)(memory - ALIGN);
    *header = (block){.base = base, .bytes = bytes, .category = category};
    return memory;
}

static oct_status give(oct_ledger *ledger, oct_ledger_category category, size_t bytes, bool zeroed,
                       const char *what, void **out, oct_err *err)
{
    void *memory = take(category, bytes, zeroed);
    if (!memory && !ledger)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot get memory for '%s' (%s): %zu bytes are required",
                        what, names[category], bytes);
    if (!memory)
        return OCT_FAIL(err, OCT_E_NOMEM,
                        "cannot get memory for '%s' (%s): %lld bytes are in use, %zu more are "
                        "required",
                        what, names[category], (long long)ledger->live_bytes_all, bytes);
    oct_ledger_add(ledger, category, bytes);
    *out = memory;
    return OCT_OK;
}

oct_status oct_ledger_alloc(oct_ledger *ledger, oct_ledger_category category, size_t bytes,
                            const char *what, void **out, oct_err *err)
{
    return give(ledger, category, bytes, false, what, out, err);
}

oct_status oct_ledger_zalloc(oct_ledger *ledger, oct_ledger_category category, size_t bytes,
                             const char *what, void **out, oct_err *err)
{
    return give(ledger, category, bytes, true, what, out, err);
}

void oct_ledger_free(oct_ledger *ledger, void *memory)
{
    if (!memory)
        return;
    const block *header = (const block *)(void *)((unsigned char *)memory - ALIGN);
    oct_ledger_remove(ledger, header->category, header->bytes);
    free(header->base);
}
