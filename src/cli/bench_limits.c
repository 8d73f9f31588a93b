#include "cli/bench_limits.h"

#include <string.h>

#include "base/profile.h"
#include "base/rng.h"
#include "base/threads.h"

enum {
    TILE_K = 2 * OCT_GEMM_GROUP,
    TILES = 1000,
    COPY_BYTES = 64 << 20,
    PIECES = 64 /* of a copy, handed to the threads */
};
static const double tile_work = 2.0 * OCT_GEMM_MR * OCT_GEMM_NR * TILE_K * TILES;

/* Operands of one tile: numbers, not zeros, which a processor may clock higher. */
typedef struct oct_bench_tile {
    _Alignas(64) float a[TILE_K * OCT_GEMM_MR];
    _Alignas(64) float b[TILE_K * OCT_GEMM_NR];
    _Alignas(64) int16_t a16[TILE_K * OCT_GEMM_MR];
    _Alignas(64) int16_t b16[TILE_K * OCT_GEMM_NR];
} oct_bench_tile;

static void fill(float *x, int16_t *mantissas, int64_t count, const char *name)
{
    const oct_rng stream = oct_rng_stream(0, name);
    for (int64_t i = 0; i < count; i++) {
        mantissas[i] = (int16_t)((int)oct_rng_below(stream, (uint64_t)i, 8001) - 4000);
        x[i] = (float)mantissas[i] * 0x1p-12f;
    }
}

static void run_tiles(void *arg, int64_t item, int thread)
{
    (void)item;
    (void)thread;
    const oct_bench_limit *limit = arg;
    const oct_bench_tile *tile = limit->tile;
    const oct_gemm_kernels *kernels = &limit->bench->kernels.gemm;
    _Alignas(64) float c[OCT_GEMM_MR * OCT_GEMM_NR] = {0};
    for (int t = 0; t < TILES; t++) {
        if (limit->kind == OCT_BENCH_LIMIT_INTEGER)
            kernels->integer_tile(TILE_K / OCT_GEMM_GROUP, tile->a16, tile->b16, tile->a, tile->b,
                                  c);
        else
            kernels->fma_tile(TILE_K, tile->a, tile->b, c);
    }
}

static void run_piece(void *arg, int64_t item, int thread)
{
    (void)thread;
    const oct_bench_limit *limit = arg;
    const size_t bytes = COPY_BYTES / PIECES;
    memcpy(limit->to + (size_t)item * bytes, limit->from + (size_t)item * bytes, bytes);
}

static oct_status run_limit(void *arg, oct_err *err)
{
    oct_bench_limit *limit = arg;
    const int threads = limit->bench->exec.threads;
    (void)err;
    if (limit->kind == OCT_BENCH_LIMIT_COPY)
        oct_parallel_for(threads, PIECES, run_piece, limit);
    else
        oct_parallel_for(threads, threads, run_tiles, limit);
    return OCT_OK;
}

oct_status oct_bench_limits_open(oct_bench *bench, oct_bench_limit limits[OCT_BENCH_LIMIT_COUNT],
                                 oct_err *err)
{
    void *from = NULL, *to = NULL, *memory = NULL;
    OCT_TRY(oct_arena_alloc(&bench->memory, sizeof(oct_bench_tile), &memory, err));
    oct_bench_tile *tile = memory;
    fill(tile->a, tile->a16, TILE_K * OCT_GEMM_MR, "left");
    fill(tile->b, tile->b16, TILE_K * OCT_GEMM_NR, "right");
    OCT_TRY(oct_arena_zalloc(&bench->memory, COPY_BYTES, &from, err));
    OCT_TRY(oct_arena_zalloc(&bench->memory, COPY_BYTES, &to, err));
    for (int kind = 0; kind < OCT_BENCH_LIMIT_COUNT; kind++)
        limits[kind] = (oct_bench_limit){.bench = bench,
                                         .kind = (oct_bench_limit_kind)kind,
                                         .tile = tile,
                                         .from = from,
                                         .to = to};
    return OCT_OK;
}

oct_bench_variant oct_bench_limit_variant(oct_bench_limit *limit)
{
    const bool copies = limit->kind == OCT_BENCH_LIMIT_COPY;
    return (oct_bench_variant){.is_limit = true,
                               .work = copies ? 2.0 * COPY_BYTES
                                              : tile_work * limit->bench->exec.threads,
                               .run = run_limit,
                               .arg = limit};
}

oct_status oct_bench_limit_rate(oct_bench_limit *limit, double *rate, oct_err *err)
{
    enum { CALLS = 9 };
    const oct_bench_variant variant = oct_bench_limit_variant(limit);
    *rate = 0.0;
    for (int call = 0; call < CALLS; call++) {
        const double started = oct_clock_seconds();
        OCT_TRY(run_limit(limit, err));
        const double found = variant.work / (oct_clock_seconds() - started);
        if (found > *rate)
            *rate = found;
    }
    return OCT_OK;
}
