#include "kernels/gemm_blocks.h"

#include <string.h>

#include "base/size.h"
#include "base/threads.h"

/* Panels of an item: 8 left panels of one chunk (0.46 MB) and one right panel stay in L2. */
enum { ITEM_ROW_PANELS = 8, ITEM_COL_PANELS = 8, CACHE_LINE = 64 };

/* Items are numbered part by part, a part for each thread: some strips of 8 left panels. So a
 * thread keeps to rows of C, whose left operand it is likely to have made. Within a part, a strip
 * of one chunk stays in L2 while right panels pass by; one of more would be read again for each of
 * them, so there those who share right panels follow one another. */
typedef struct run {
    const oct_gemm_blocks *blocks;
    const oct_gemm_kernels *kernels;
    int64_t row_items, col_items, col_item_panels;
    int64_t parts;
    float *tiles; /* [threads][ITEM_ROW_PANELS * ITEM_COL_PANELS][OCT_GEMM_TILE] */
} run;

/* What finish_tile() will write, fetched while the tile is computed: rows of C are pages apart, and
 * each would be waited for. */
static void prefetch_tile(const oct_gemm_out *out, int64_t row, int64_t rows, int64_t col,
                          int64_t cols)
{
    const size_t size = oct_dtype_bytes(out->dtype);
    for (int64_t i = 0; i < rows; i++) {
        const char *line = (const char *)out->data + (size_t)((row + i) * out->ld + col) * size;
        for (size_t at = 0; at < (size_t)cols * size; at += CACHE_LINE)
            __builtin_prefetch(line + at, 1);
    }
}

static void start_tile(const oct_gemm_out *out, int64_t row, int64_t rows, int64_t col,
                       int64_t cols, float *c)
{
    memset(c, 0, OCT_GEMM_TILE * sizeof *c);
    if (out->store != OCT_GEMM_CONTINUE)
        return;
    for (int64_t i = 0; i < rows; i++)
        memcpy(c + i * OCT_GEMM_NR, (const float *)out->data + (row + i) * out->ld + col,
               (size_t)cols * sizeof *c);
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

static void run_item(void *arg, int64_t item, int thread)
{
    const run *r = arg;
    int64_t strip, col_item;
    place_item(r, item, &strip, &col_item);
    const oct_gemm_blocks *b = r->blocks;
    const oct_gemm_out *out = b->finish->out;
    const int64_t i0 = b->row_panel + strip * ITEM_ROW_PANELS;
    const int64_t i1 = oct_min_i64(i0 + ITEM_ROW_PANELS, b->row_panel + b->row_panels);
    const int64_t j0 = b->col_panel + col_item * r->col_item_panels;
    const int64_t j1 = oct_min_i64(j0 + r->col_item_panels, b->col_panel + b->col_panels);
    float *tiles = r->tiles + (int64_t)thread * ITEM_ROW_PANELS * ITEM_COL_PANELS * OCT_GEMM_TILE;

    /* K = 0 still starts and finishes every tile. */
    const int64_t rounds = oct_max_i64(b->chunks, 1);
    for (int64_t chunk = 0; chunk < rounds; chunk++) {
        float *c = tiles;
        for (int64_t j = j0; j < j1; j++) {
            const int64_t col = j * OCT_GEMM_NR;
            const int64_t cols = oct_min_i64(b->cols - col, OCT_GEMM_NR);
            for (int64_t i = i0; i < i1; i++, c += OCT_GEMM_TILE) {
                const int64_t row = i * OCT_GEMM_MR;
                const int64_t rows = oct_min_i64(b->rows - row, OCT_GEMM_MR);
                if (chunk == 0)
                    start_tile(out, row, rows, col, cols, c);
                if (chunk == rounds - 1)
                    prefetch_tile(out, row, rows, col, cols);
                if (chunk < b->chunks)
                    b->add(b->arg, i, j, chunk, c);
                if (chunk == rounds - 1)
                    r->kernels->finish_tile(b->finish, c, row, rows, col, cols);
            }
        }
    }
}

int64_t oct_gemm_work_bytes(int threads)
{
    return (int64_t)threads * ITEM_ROW_PANELS * ITEM_COL_PANELS * OCT_GEMM_TILE *
           (int64_t)sizeof(float);
}

oct_status oct_gemm_blocks_run(const oct_exec *exec, const oct_gemm_blocks *blocks, oct_err *err)
{
    run r = {.blocks = blocks, .kernels = &exec->kernels->gemm};
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
