#include "cli/bench_limits.h"

#include <string.h>

#include "base/profile.h"
#include "base/threads.h"

enum {
    TILE_K = 2 * OCT_GEMM_GROUP,
    TILES = 1000,
    COPY_BYTES = 64 << 20,
    PIECES = 64 /* of a copy, handed to the threads */
};
static const double tile_work = 2.0 * OCT_GEMM_MR * OCT_GEMM_NR * TILE_K * TILES;

static void run_tiles(void *arg, int64_t item, int thread)
{
    (void)item;
    (void)thread;
    const oct_bench_limit *limit = arg;
    const oct_gemm_kernels *kernels = &limit->bench->kernels.gemm;
    _Alignas(64) float c[OCT_GEMM_MR * OCT_GEMM_NR] = {0};
    /* Zero operands: as fast as any, and sums that stay in range. */
    _Alignas(64) float a[TILE_K * OCT_GEMM_MR] = {0}, b[TILE_K * OCT_GEMM_NR] = {0};
    _Alignas(64) int16_t a16[TILE_K * OCT_GEMM_MR] = {0}, b16[TILE_K * OCT_GEMM_NR] = {0};
    for (int t = 0; t < TILES; t++) {
        if (limit->kind == OCT_BENCH_LIMIT_INTEGER)
            kernels->integer_tile(TILE_K / OCT_GEMM_GROUP, a16, b16, a, b, c);
        else
            kernels->fma_tile(TILE_K, a, b, c);
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
    void *from = NULL, *to = NULL;
    OCT_TRY(oct_arena_zalloc(&bench->memory, COPY_BYTES, &from, err));
    OCT_TRY(oct_arena_zalloc(&bench->memory, COPY_BYTES, &to, err));
    for (int kind = 0; kind < OCT_BENCH_LIMIT_COUNT; kind++)
        limits[kind] = (oct_bench_limit){
            .bench = bench, .kind = (oct_bench_limit_kind)kind, .from = from, .to = to};
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
