/* Drivers of the quantizers: check, cut into tiles that do not depend on the thread count, run. */
#include "kernels/quantize.h"

#include "base/size.h"
#include "base/threads.h"
#include "kernels/exec.h"
#include "kernels/quantize_kernels.h"
#include "numeric/bf16.h"

enum {
    STRIP_ROWS = 64, /* one pair of blocks of the col orientation */
    TILE_COLS = 256, /* keeps a tile of BF16 (32 KiB) in the first cache for its second reading */
    RUN_ELEMENTS = 65536 /* an item of the per-tensor loops: 128 KiB of BF16 */
};

void oct_quantize_kernels_init(oct_quantize_kernels *kernels, oct_isa isa)
{
    *kernels = (oct_quantize_kernels){0};
    oct_quantize_kernels_ref(kernels);
#if defined(__x86_64__)
    if (isa >= OCT_ISA_AVX2)
        oct_quantize_kernels_avx2(kernels);
    if (isa >= OCT_ISA_AVX512)
        oct_quantize_kernels_avx512(kernels);
#else
    (void)isa;
#endif
}

/* groups as the loops want them: at least one, ends known. */
static oct_groups whole_or(const oct_groups *groups, const int64_t *rows)
{
    return groups && groups->count > 0 ? *groups : (oct_groups){.count = 1, .ends = rows};
}

int64_t oct_mx_col_pairs(const oct_groups *groups, int64_t rows)
{
    const oct_groups all = whole_or(groups, &rows);
    int64_t pairs = 0, start = 0;
    for (int64_t g = 0; g < all.count; g++) {
        pairs += oct_ceil_div(all.ends[g] - start, STRIP_ROWS);
        start = all.ends[g];
    }
    return pairs;
}

int64_t oct_mx_col_pairs_bound(int64_t count, int64_t rows)
{
    /* One row in every group, the rest in whole pairs of one of them. */
    const int64_t busy = oct_min_i64(oct_max_i64(count, 1), rows);
    return busy + (rows - busy) / STRIP_ROWS;
}

static oct_status check_source(const oct_tensor *x, const oct_groups *groups, oct_err *err)
{
    if (x->ndim != 2)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot quantize a tensor of %d dimensions: 2 are required", x->ndim);
    if (x->dtype != OCT_DTYPE_F32 && x->dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot quantize a tensor of %s: float32 or bfloat16 is required",
                        oct_dtype_name(x->dtype));
    const oct_groups all = whole_or(groups, &x->shape[0]);
    int64_t start = 0;
    for (int64_t g = 0; g < all.count; g++) {
        if (all.ends[g] < start)
            return OCT_FAIL(
                err, OCT_E_SHAPE,
                "cannot quantize by groups: group %lld ends at row %lld, at least %lld is "
                "required",
                (long long)g, (long long)all.ends[g], (long long)start);
        start = all.ends[g];
    }
    if (start != x->shape[0])
        return OCT_FAIL(
            err, OCT_E_SHAPE,
            "cannot quantize by groups: the last group ends at row %lld, %lld is required",
            (long long)start, (long long)x->shape[0]);
    return OCT_OK;
}

static void observe(const oct_exec *exec, oct_quantize_result result)
{
    const oct_quantize_observer *observer = exec->kernels->quantize.observer;
    if (observer)
        observer->observe(observer->arg, &result);
}

static const void *element(const oct_tensor *x, int64_t index)
{
    return (const char *)x->data + (size_t)index * oct_dtype_bytes(x->dtype);
}

/* --- MX ------------------------------------------------------------------------------------- */

/* Up to 64 rows of one group; `pair` is its row in the scales of the col orientation. */
typedef struct strip {
    int64_t row, rows;
} strip;

typedef struct mx_job {
    const oct_quantize_kernels *kernels;
    const oct_tensor *x;
    oct_mx_rule rule;
    const oct_mx_out *out;
    const strip *strips; /* the index is the pair row of the col orientation */
    int64_t tiles;       /* per strip */
} mx_job;

static void mx_tile(void *arg, int64_t item, int thread)
{
    (void)thread;
    const mx_job *job = arg;
    const oct_mx_out *out = job->out;
    const int64_t pair = item / job->tiles, n = job->x->shape[1];
    const int64_t row = job->strips[pair].row, rows = job->strips[pair].rows;
    const int64_t col = item % job->tiles * TILE_COLS;
    const int64_t cols = oct_min_i64(TILE_COLS, n - col);
    const int64_t scale_ld = 2 * oct_ceil_div(n, 64);
    const void *x = element(job->x, row * n + col);
    if (out->row_codes)
        job->kernels->mx_rows(x, job->x->dtype, n, rows, cols, job->rule,
                              out->row_codes + row * n + col, n,
                              out->row_scales + row * scale_ld + col / 32, scale_ld);
    if (out->col_codes)
        job->kernels->mx_cols(x, job->x->dtype, n, rows, cols, job->rule,
                              out->col_codes + row * n + col, n,
                              out->col_scales + (pair * n + col) * 2);
}

static void list_strips(const oct_groups *groups, strip *strips)
{
    int64_t row = 0;
    for (int64_t g = 0; g < groups->count; g++) {
        while (row < groups->ends[g]) {
            const int64_t rows = oct_min_i64(STRIP_ROWS, groups->ends[g] - row);
            *strips++ = (strip){.row = row, .rows = rows};
            row += rows;
        }
    }
}

static int64_t aligned_bytes(int64_t count, size_t size)
{
    return oct_ceil_div(count * (int64_t)size, OCT_ARENA_ALIGN) * OCT_ARENA_ALIGN;
}

int64_t oct_mx_quantize_bytes(int64_t count, int64_t rows)
{
    return aligned_bytes(oct_mx_col_pairs_bound(count, rows), sizeof(strip));
}

oct_status oct_mx_quantize(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                           oct_mx_rule rule, const oct_mx_out *out, oct_err *err)
{
    OCT_TRY(check_source(x, groups, err));
    if (!out->row_codes != !out->row_scales || !out->col_codes != !out->col_scales)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot quantize to MX: codes without scales (or the reverse), both are "
                        "required");
    const int64_t m = x->shape[0], n = x->shape[1];
    const oct_groups all = whole_or(groups, &m);
    const int64_t pairs = oct_mx_col_pairs(&all, m), tiles = oct_ceil_div(n, TILE_COLS);
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    void *strips = NULL;
    OCT_TRY(oct_arena_array(exec->scratch, pairs, sizeof(strip), &strips, err));
    list_strips(&all, strips);
    mx_job job = {.kernels = &exec->kernels->quantize,
                  .x = x,
                  .rule = rule,
                  .out = out,
                  .strips = strips,
                  .tiles = tiles};
    oct_parallel_for(exec->threads, pairs * tiles, mx_tile, &job);
    oct_arena_rewind(exec->scratch, mark);
    if (out->row_codes)
        observe(exec, (oct_quantize_result){.kind = OCT_QUANTIZE_MX_ROW,
                                            .x = x,
                                            .groups = groups,
                                            .codes = out->row_codes,
                                            .scales = out->row_scales});
    if (out->col_codes)
        observe(exec, (oct_quantize_result){.kind = OCT_QUANTIZE_MX_COL,
                                            .x = x,
                                            .groups = groups,
                                            .codes = out->col_codes,
                                            .scales = out->col_scales});
    return OCT_OK;
}

/* --- HiF8 ----------------------------------------------------------------------------------- */

/* A run of elements of one group. */
typedef struct run {
    int64_t first, count, group;
    float amax;
} run;

typedef struct hif8_job {
    const oct_quantize_kernels *kernels;
    const oct_tensor *x;
    run *runs;
    const float *scales;
    bool saturate;
    uint8_t *codes;
} hif8_job;

int64_t oct_hif8_quantize_bytes(int64_t count, int64_t rows, int64_t cols)
{
    /* Every group ends with a run that may be short. */
    return aligned_bytes(rows * cols / RUN_ELEMENTS + oct_max_i64(count, 1), sizeof(run));
}

/* Cuts the groups into runs, in scratch memory of exec. */
static oct_status list_runs(const oct_exec *exec, const oct_groups *groups, int64_t cols, run **out,
                            int64_t *count, oct_err *err)
{
    int64_t runs = 0, first = 0;
    for (int64_t g = 0; g < groups->count; g++) {
        runs += oct_ceil_div(groups->ends[g] * cols - first, RUN_ELEMENTS);
        first = groups->ends[g] * cols;
    }
    void *memory = NULL;
    OCT_TRY(oct_arena_array(exec->scratch, runs, sizeof(run), &memory, err));
    run *next = memory;
    first = 0;
    for (int64_t g = 0; g < groups->count; g++) {
        while (first < groups->ends[g] * cols) {
            const int64_t elements = oct_min_i64(RUN_ELEMENTS, groups->ends[g] * cols - first);
            *next++ = (run){.first = first, .count = elements, .group = g};
            first += elements;
        }
    }
    *out = memory;
    *count = runs;
    return OCT_OK;
}

static void amax_run(void *arg, int64_t item, int thread)
{
    (void)thread;
    const hif8_job *job = arg;
    run *part = &job->runs[item];
    part->amax = job->kernels->amax(element(job->x, part->first), job->x->dtype, part->count);
}

oct_status oct_hif8_amax(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                         float *amax, oct_err *err)
{
    OCT_TRY(check_source(x, groups, err));
    const oct_groups all = whole_or(groups, &x->shape[0]);
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    hif8_job job = {.kernels = &exec->kernels->quantize, .x = x};
    int64_t runs = 0;
    OCT_TRY(list_runs(exec, &all, x->shape[1], &job.runs, &runs, err));
    oct_parallel_for(exec->threads, runs, amax_run, &job);
    for (int64_t g = 0; g < all.count; g++)
        amax[g] = 0.0f;
    for (int64_t i = 0; i < runs; i++) { /* as bit patterns: a NaN wins */
        float *largest = &amax[job.runs[i].group];
        if (oct_f32_bits(job.runs[i].amax) > oct_f32_bits(*largest))
            *largest = job.runs[i].amax;
    }
    oct_arena_rewind(exec->scratch, mark);
    return OCT_OK;
}

static void encode_run(void *arg, int64_t item, int thread)
{
    (void)thread;
    const hif8_job *job = arg;
    const run *part = &job->runs[item];
    job->kernels->hif8_encode(element(job->x, part->first), job->x->dtype, part->count,
                              job->scales[part->group], job->saturate, job->codes + part->first);
}

oct_status oct_hif8_quantize(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                             const float *scales, bool saturate, uint8_t *codes, oct_err *err)
{
    OCT_TRY(check_source(x, groups, err));
    const oct_groups all = whole_or(groups, &x->shape[0]);
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    hif8_job job = {.kernels = &exec->kernels->quantize,
                    .x = x,
                    .scales = scales,
                    .saturate = saturate,
                    .codes = codes};
    int64_t runs = 0;
    OCT_TRY(list_runs(exec, &all, x->shape[1], &job.runs, &runs, err));
    oct_parallel_for(exec->threads, runs, encode_run, &job);
    oct_arena_rewind(exec->scratch, mark);
    observe(
        exec,
        (oct_quantize_result){
            .kind = OCT_QUANTIZE_HIF8, .x = x, .groups = groups, .codes = codes, .scales = scales});
    return OCT_OK;
}
