/* Bump arenas with named lifetimes. An arena grows while it learns how much one step needs and
 * from then on serves every step from one block: no heap call happens in the step loop after the
 * first step. */
#ifndef OCT_BASE_ARENA_H
#define OCT_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ledger.h"
#include "base/status.h"

typedef struct oct_arena_block oct_arena_block;

/* Owner of its blocks, unless it is fixed. Not thread-safe: one arena belongs to one thread at a
 * time. */
typedef struct oct_arena {
    const char *name;       /* "persist", "step", "scratch", ...; static string */
    oct_arena_block *first; /* chain, newest last */
    oct_arena_block *current;
    size_t used_bytes;   /* live bytes over all blocks */
    size_t peak_bytes;   /* largest used_bytes since init */
    uint64_t heap_calls; /* how often the heap was asked: constant after the first step */
    bool fixed;          /* memory of a caller: never grows, never freed */
    oct_ledger *ledger;  /* counts the blocks, or NULL */
    oct_ledger_category category;
} oct_arena;

/* A point to return to. */
typedef struct oct_arena_mark {
    oct_arena_block *block;
    size_t offset;
    size_t used_bytes;
} oct_arena_mark;

/* Every allocation is aligned to this many bytes. */
enum { OCT_ARENA_ALIGN = 64 };

/* What a fixed arena takes for itself, alignment of its memory included. */
enum { OCT_ARENA_FIXED_BYTES = 2 * OCT_ARENA_ALIGN };

/* An empty arena: the heap is asked at the first allocation. release gives everything back; both
 * leave an arena that can be used. */
void oct_arena_init(oct_arena *arena, const char *name);
void oct_arena_release(oct_arena *arena);

/* An arena over `bytes` of memory that the caller owns, any alignment; it starts a header inside. A
 * round of allocations fits if OCT_ARENA_FIXED_BYTES and its sizes, each rounded up to
 * OCT_ARENA_ALIGN, do. What does not fit is OCT_E_NOMEM; no heap call is ever made. */
void oct_arena_init_fixed(oct_arena *arena, const char *name, void *memory, size_t bytes);

/* From here on the blocks of the arena, and those that it has, are counted in `ledger` (NULL: not
 * any more) under `category`, as large as they are, used or not. Stays through release. A fixed
 * arena is not counted: its memory is its owner's. */
void oct_arena_attach(oct_arena *arena, oct_ledger *ledger, oct_ledger_category category);

/* Uninitialised bytes, 64-byte aligned, valid until a reset or rewind past this point. bytes 0
 * gives a valid pointer. Errors: OCT_E_NOMEM, naming the arena and the size. */
oct_status oct_arena_alloc(oct_arena *arena, size_t bytes, void **out, oct_err *err) OCT_MUST_CHECK;

/* The same with zeroed bytes. */
oct_status oct_arena_zalloc(oct_arena *arena, size_t bytes, void **out,
                            oct_err *err) OCT_MUST_CHECK;

/* count * size with overflow check. */
oct_status oct_arena_array(oct_arena *arena, int64_t count, size_t size, void **out,
                           oct_err *err) OCT_MUST_CHECK;

/* Gives back all of the last allocation but its first `bytes`. */
void oct_arena_trim(oct_arena *arena, const void *last, size_t bytes);

oct_arena_mark oct_arena_save(const oct_arena *arena);
void oct_arena_rewind(oct_arena *arena, oct_arena_mark mark);

/* How far an arena grows between begin and end: its most used bytes beyond those at the beginning.
 * peak_bytes is afterwards what it would have been. */
typedef struct oct_arena_watch {
    size_t used_bytes, peak_bytes;
} oct_arena_watch;
oct_arena_watch oct_arena_watch_begin(oct_arena *arena);
size_t oct_arena_watch_end(oct_arena *arena, oct_arena_watch watch);

/* Frees everything; when the last round needed several blocks, replaces them by one of the peak
 * size. */
void oct_arena_reset(oct_arena *arena);

/* Resets; then the arena is one block of at least `bytes`. Errors: OCT_E_NOMEM, the arena is empty
 * and usable. */
oct_status oct_arena_reserve(oct_arena *arena, size_t bytes, oct_err *err) OCT_MUST_CHECK;

#endif
