#include "kernels/gemm_blocks.h"

#include <string.h>

#include "base/size.h"
#include "base/threads.h"

/* Panels of an item: 8 left panels of one chunk (0.46 MB) and one right panel stay in L2. */
enum { ITEM_ROW_PANELS = OCT_GEMM_STRIP, ITEM_COL_PANELS = 8, CACHE_LINE = 64 };

/* Items are numbered part by part, a part for each thread: some strips of 8 left panels. So a
 * thread keeps to rows of C, whose left operand it is likely to have made. Within a part, a strip
 * of one chunk stays in L2 while right panels pass by; one of more would be read again for each of
 * them, so there those who share right panels follow one another. */
typedef struct run {
    const oct_gemm_blocks *blocks;
    const oct_gemm_kernels *kernels;
    size_t element; /* bytes of one of C */
    int64_t row_items, col_items, col_item_panels;
    int64_t parts;
    float *tiles; /* [threads][ITEM_ROW_PANELS * ITEM_COL_PANELS][OCT_GEMM_TILE] */
} run;

/* A tile in C. */
typedef struct place {
    int64_t row, rows, col, cols;
} place;

static place place_of(const oct_gemm_blocks *b, int64_t i, int64_t j)
{
    const int64_t row = i * OCT_GEMM_MR, col = j * OCT_GEMM_NR;
    return (place){.row = row,
                   .rows = oct_min_i64(b->rows - row, OCT_GEMM_MR),
                   .col = col,
                   .cols = oct_min_i64(b->cols - col, OCT_GEMM_NR)};
}

/* Its first element there. */
static char *first_of(const run *r, const place *at)
{
    const oct_gemm_out *out = r->blocks->finish->out;
    return (char *)out->data + (size_t)(at->row * out->ld + at->col) * r->element;
}

/* What finish_tile() will write, fetched while the tile is computed: rows of C are pages apart, and
 * each would be waited for. Always inline: GCC finds a function that only fetches free of effects,
 * and drops calls of it. */
static inline __attribute__((always_inline)) void prefetch_tile(const run *r, const place *at)
{
    const size_t bytes = (size_t)at->cols * r->element;
    const size_t step = (size_t)r->blocks->finish->out->ld * r->element;
    const char *line = first_of(r, at);
    for (int64_t i = 0; i < at->rows; i++, line += step)
        for (size_t byte = 0; byte < bytes; byte += CACHE_LINE)
            __builtin_prefetch(line + byte, 1);
}

static void start_tile(const run *r, const place *at, float *c)
{
    const oct_gemm_out *out = r->blocks->finish->out;
    size_t bytes = OCT_GEMM_TILE * sizeof *c;
    __asm__("" : "+r"(bytes)); /* of a known size GCC makes `rep stos`, slower than the call */
    memset(c, 0, bytes);
    if (out->store != OCT_GEMM_CONTINUE)
        return;
    const float *from = (const float *)(const void *)first_of(r, at);
    for (int64_t i = 0; i < at->rows; i++)
        memcpy(c + i * OCT_GEMM_NR, from + i * out->ld, (size_t)at->cols * sizeof *c);
}

static void finish_tile(const run *r, const place *at, const float *c)
{
    r->kernels->finish_tile(r->blocks->finish, c, at->row, at->rows, at->col, at->cols);
}

/* Of a part; parts differ by one strip at most. */
static int64_t first_strip(const run *r, int64_t part)
{
    return part * r->row_items / r->parts;
}

static void place_item(const run *r, int64_t item, int64_t *strip, int64_t *col_item)
{
    /* The part whose strips, times col_items, reach over the item. */
    const int64_t part = ((item / r->col_items + 1) * r->parts - 1) / r->row_items;
    const int64_t first = first_strip(r, part);
    const int64_t strips = first_strip(r, part + 1) - first;
    const int64_t at = item - first * r->col_items;
    const bool along_strip = r->blocks->chunks <= 1;
    *strip = first + (along_strip ? at / r->col_items : at % strips);
    *col_item = along_strip ? at % r->col_items : at / strips;
}

/* One chunk of tiles (i0 .. i1 - 1, j), which lie behind one another from c on. K = 0 still starts
 * and finishes every tile. */
static void run_column(const run *r, int64_t i0, int64_t i1, int64_t j, int64_t chunk, float *c)
{
    const oct_gemm_blocks *b = r->blocks;
    const bool last = chunk >= b->chunks - 1, any = chunk < b->chunks;
    float *tile = c;
    for (int64_t i = i0; i < i1; i++, tile += OCT_GEMM_TILE) {
        const place at = place_of(b, i, j);
        if (chunk == 0)
            start_tile(r, &at, tile);
        if (last)
            prefetch_tile(r, &at);
        if (any)
            b->add(b->arg, i, j, chunk, tile);
        if (last && !b->add_column)
            finish_tile(r, &at, tile);
    }
    if (!b->add_column)
        return;
    if (any)
        b->add_column(b->arg, i0, i1 - i0, j, chunk, c);
    tile = c;
    for (int64_t i = i0; last && i < i1; i++, tile += OCT_GEMM_TILE) {
        const place at = place_of(b, i, j);
        finish_tile(r, &at, tile);
    }
}

static void run_item(void *arg, int64_t item, int thread)
{
    const run *r = arg;
    int64_t strip, col_item;
    place_item(r, item, &strip, &col_item);
    const oct_gemm_blocks *b = r->blocks;
    const int64_t i0 = b->row_panel + strip * ITEM_ROW_PANELS;
    const int64_t i1 = oct_min_i64(i0 + ITEM_ROW_PANELS, b->row_panel + b->row_panels);
    const int64_t j0 = b->col_panel + col_item * r->col_item_panels;
    const int64_t j1 = oct_min_i64(j0 + r->col_item_panels, b->col_panel + b->col_panels);
    float *tiles = r->tiles + (int64_t)thread * ITEM_ROW_PANELS * ITEM_COL_PANELS * OCT_GEMM_TILE;
    const int64_t rounds = oct_max_i64(b->chunks, 1);
    /* Tiles of one chunk are finished before others take their place. */
    const int64_t step = rounds > 1 ? (i1 - i0) * OCT_GEMM_TILE : 0;
    for (int64_t chunk = 0; chunk < rounds; chunk++)
        for (int64_t j = j0; j < j1; j++)
            run_column(r, i0, i1, j, chunk, tiles + (j - j0) * step);
}

int64_t oct_gemm_work_bytes(int threads)
{
    return (int64_t)threads * ITEM_ROW_PANELS * ITEM_COL_PANELS * OCT_GEMM_TILE *
           (int64_t)sizeof(float);
}

oct_status oct_gemm_blocks_run(const oct_exec *exec, const oct_gemm_blocks *blocks, oct_err *err)
{
    run r = {.blocks = blocks,
             .kernels = &exec->kernels->gemm,
             .element = oct_dtype_bytes(blocks->finish->out->dtype)};
    r.row_items = oct_ceil_div(blocks->row_panels, ITEM_ROW_PANELS);
    /* Narrower items where the product is too small to feed every thread. */
    const int64_t per_thread =
        oct_ceil_div(r.row_items * blocks->col_panels, 2 * (int64_t)exec->threads);
    r.col_item_panels = oct_max_i64(1, oct_min_i64(ITEM_COL_PANELS, per_thread));
    r.col_items = oct_ceil_div(blocks->col_panels, r.col_item_panels);
    r.parts = oct_min_i64(r.row_items, exec->threads);

    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    void *tiles = NULL;
    OCT_TRY(
        oct_arena_alloc(exec->scratch, (size_t)oct_gemm_work_bytes(exec->threads), &tiles, err));
    r.tiles = tiles;
    oct_parallel_for(exec->threads, r.row_items * r.col_items, run_item, &r);
    oct_arena_rewind(exec->scratch, mark);
    return OCT_OK;
}
