#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/huge_pages.h"
#include "base/size.h"

struct oct_arena_block {
    oct_arena_block *next;
    size_t capacity;
    size_t offset;
    unsigned char *data;
};

enum { MIN_BLOCK_BYTES = 1 << 20 };

/* In debug builds (OCTET_POISON) bytes are filled with this when they are handed out and when they
 * are given back: NaN in F32, BF16, E4M3 and E8M0. */
#ifdef OCTET_POISON
enum { POISON = 0xff };
#endif

static void poison(void *data, size_t bytes)
{
#ifdef OCTET_POISON
    memset(data, POISON, bytes);
#else
    (void)data;
    (void)bytes;
#endif
}

void oct_arena_init(oct_arena *arena, const char *name)
{
    *arena = (oct_arena){.name = name};
}

void oct_arena_init_fixed(oct_arena *arena, const char *name, void *memory, size_t bytes)
{
    _Static_assert(sizeof(oct_arena_block) <= OCT_ARENA_ALIGN, "the header has room");
    *arena = (oct_arena){.name = name, .fixed = true};
    const size_t skipped = -(uintptr_t)memory & (OCT_ARENA_ALIGN - 1);
    if (bytes < skipped + OCT_ARENA_ALIGN)
        return;
    oct_arena_block *block = (oct_arena_block *)(void *)((unsigned char *)memory + skipped);
    *block = (oct_arena_block){.capacity = bytes - skipped - OCT_ARENA_ALIGN,
                               .data = (unsigned char *)block + OCT_ARENA_ALIGN};
    arena->first = block;
}

static void free_blocks(oct_arena *arena)
{
    while (arena->first) {
        oct_arena_block *block = arena->first;
        arena->first = block->next;
        oct_ledger_remove(arena->ledger, arena->category, block->capacity);
        free(block->data);
        free(block);
    }
}

void oct_arena_attach(oct_arena *arena, oct_ledger *ledger, oct_ledger_category category)
{
    if (arena->fixed)
        return;
    for (const oct_arena_block *block = arena->first; block; block = block->next) {
        oct_ledger_remove(arena->ledger, arena->category, block->capacity);
        oct_ledger_add(ledger, category, block->capacity);
    }
    arena->ledger = ledger;
    arena->category = category;
}

void oct_arena_release(oct_arena *arena)
{
    if (!arena->fixed)
        free_blocks(arena);
    *arena = (oct_arena){.name = arena->name, .ledger = arena->ledger, .category = arena->category};
}

static oct_status add_block(oct_arena *arena, size_t bytes, oct_err *err)
{
    if (arena->fixed)
        return OCT_FAIL(err, OCT_E_NOMEM,
                        "cannot get memory for arena '%s': %zu more bytes wanted, %zu in use, its "
                        "memory is fixed",
                        arena->name, bytes, arena->used_bytes);
    size_t capacity = bytes > MIN_BLOCK_BYTES ? bytes : (size_t)MIN_BLOCK_BYTES;
    if (!arena->first && capacity < arena->peak_bytes)
        capacity = arena->peak_bytes;
    capacity = (capacity + OCT_ARENA_ALIGN - 1) & ~(size_t)(OCT_ARENA_ALIGN - 1);
    oct_arena_block *block = malloc(sizeof *block);
    unsigned char *data = block ? aligned_alloc(OCT_ARENA_ALIGN, capacity) : NULL;
    if (!data) {
        free(block);
        return OCT_FAIL(err, OCT_E_NOMEM,
                        "cannot get memory for arena '%s': %zu more bytes wanted, %zu in use",
                        arena->name, capacity, arena->used_bytes);
    }
    oct_huge_pages_advise(data, capacity);
    arena->heap_calls++;
    oct_ledger_add(arena->ledger, arena->category, capacity);
    *block = (oct_arena_block){.capacity = capacity, .data = data};
    if (arena->current) {
        /* Blocks behind the current one are empty leftovers of a rewind: too small, keep order. */
        block->next = arena->current->next;
        arena->current->next = block;
    } else {
        block->next = arena->first;
        arena->first = block;
    }
    arena->current = block;
    return OCT_OK;
}

oct_status oct_arena_alloc(oct_arena *arena, size_t bytes, void **out, oct_err *err)
{
    if (bytes > SIZE_MAX / 2)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot get memory for arena '%s': %zu bytes wanted",
                        arena->name, bytes);
    size_t need = (bytes + OCT_ARENA_ALIGN - 1) & ~(size_t)(OCT_ARENA_ALIGN - 1);
    while (!arena->current || arena->current->capacity - arena->current->offset < need) {
        oct_arena_block *next = arena->current ? arena->current->next : arena->first;
        if (next && next->capacity >= need) {
            arena->current = next;
            continue;
        }
        OCT_TRY(add_block(arena, need, err));
    }
    *out = arena->current->data + arena->current->offset;
    poison(*out, need);
    arena->current->offset += need;
    arena->used_bytes += need;
    if (arena->used_bytes > arena->peak_bytes)
        arena->peak_bytes = arena->used_bytes;
    return OCT_OK;
}

oct_status oct_arena_zalloc(oct_arena *arena, size_t bytes, void **out, oct_err *err)
{
    OCT_TRY(oct_arena_alloc(arena, bytes, out, err));
    memset(*out, 0, bytes);
    return OCT_OK;
}

oct_status oct_arena_array(oct_arena *arena, int64_t count, size_t size, void **out, oct_err *err)
{
    size_t bytes = 0;
    if (count < 0 || !oct_size_mul((size_t)count, size, &bytes))
        return OCT_FAIL(err, OCT_E_NOMEM,
                        "cannot get memory for arena '%s': %lld items of %zu bytes", arena->name,
                        (long long)count, size);
    return oct_arena_alloc(arena, bytes, out, err);
}

void oct_arena_trim(oct_arena *arena, const void *last, size_t bytes)
{
    oct_arena_block *block = arena->current;
    const size_t begin = (size_t)((const unsigned char *)last - block->data);
    const size_t end = begin + ((bytes + OCT_ARENA_ALIGN - 1) & ~(size_t)(OCT_ARENA_ALIGN - 1));
    poison(block->data + end, block->offset - end);
    arena->used_bytes -= block->offset - end;
    block->offset = end;
}

oct_arena_mark oct_arena_save(const oct_arena *arena)
{
    return (oct_arena_mark){.block = arena->current,
                            .offset = arena->current ? arena->current->offset : 0,
                            .used_bytes = arena->used_bytes};
}

void oct_arena_rewind(oct_arena *arena, oct_arena_mark mark)
{
    oct_arena_block *block = mark.block ? mark.block : arena->first;
    if (!block)
        return;
    size_t offset = mark.block ? mark.offset : 0;
    poison(block->data + offset, block->offset - offset);
    block->offset = offset;
    for (oct_arena_block *later = block->next; later; later = later->next) {
        poison(later->data, later->offset);
        later->offset = 0;
    }
    arena->current = block;
    arena->used_bytes = mark.used_bytes;
}

void oct_arena_reset(oct_arena *arena)
{
    arena->used_bytes = 0;
    arena->current = NULL;
    if (!arena->first)
        return;
    if (arena->first->next) { /* needed several blocks: come back as one */
        free_blocks(arena);
        /* Rounding at block ends: the peak counts aligned sizes only, so one block of it is enough.
         * Now rather than later, so that a step that follows asks for nothing; a failure is found
         * again, and reported, by the next allocation. */
        (void)add_block(arena, arena->peak_bytes, NULL);
        return;
    }
    poison(arena->first->data, arena->first->offset);
    arena->first->offset = 0;
}

oct_status oct_arena_reserve(oct_arena *arena, size_t bytes, oct_err *err)
{
    oct_arena_reset(arena);
    if (arena->first && arena->first->capacity >= bytes)
        return OCT_OK;
    if (!arena->fixed)
        free_blocks(arena);
    OCT_TRY(add_block(arena, bytes, err));
    arena->current = NULL;
    return OCT_OK;
}

oct_arena_watch oct_arena_watch_begin(oct_arena *arena)
{
    const oct_arena_watch watch = {.used_bytes = arena->used_bytes,
                                   .peak_bytes = arena->peak_bytes};
    arena->peak_bytes = arena->used_bytes;
    return watch;
}

size_t oct_arena_watch_end(oct_arena *arena, oct_arena_watch watch)
{
    const size_t grown = arena->peak_bytes - watch.used_bytes;
    if (arena->peak_bytes < watch.peak_bytes)
        arena->peak_bytes = watch.peak_bytes;
    return grown;
}
