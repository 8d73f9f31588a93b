/* Drivers of the quantizers: check, cut into tiles that do not depend on the thread count, run. */
#include "kernels/quantize.h"

#include "base/size.h"
#include "base/threads.h"
#include "kernels/elementwise_drive.h"
#include "kernels/exec.h"
#include "kernels/quantize_kernels.h"
#include "numeric/bf16.h"

enum {
    STRIP_ROWS = 64, /* one pair of blocks of the col orientation */
    TILE_COLS = 256, /* keeps a tile of BF16 (32 KiB) in the first cache for its second reading */
    RUN_ELEMENTS = 65536, /* an item of the per-tensor loops: 128 KiB of BF16 */
    PIECE_ELEMENTS = 2048 /* of a row that is made for them */
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

static oct_status check_tensor(const oct_tensor *x, oct_err *err)
{
    if (x->ndim != 2)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot quantize a tensor of %d dimensions: 2 are required", x->ndim);
    return OCT_OK;
}

static oct_status check_source(const oct_lazy *x, const oct_groups *groups, oct_err *err)
{
    if (x->dtype != OCT_DTYPE_F32 && x->dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot quantize a tensor of %s: float32 or bfloat16 is required",
                        oct_dtype_name(x->dtype));
    const oct_groups all = whole_or(groups, &x->rows);
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
    if (start != x->rows)
        return OCT_FAIL(
            err, OCT_E_SHAPE,
            "cannot quantize by groups: the last group ends at row %lld, %lld is required",
            (long long)start, (long long)x->rows);
    return OCT_OK;
}

static void observe(const oct_exec *exec, oct_quantize_result result)
{
    const oct_quantize_observer *observer = exec->kernels->quantize.observer;
    if (observer)
        observer->observe(observer->arg, &result);
}

/* --- MX ------------------------------------------------------------------------------------- */

/* Up to 64 rows of one group; `pair` is its row in the scales of the col orientation. */
typedef struct strip {
    int64_t row, rows;
} strip;

typedef struct mx_job {
    const oct_quantize_kernels *kernels;
    const oct_lazy *x;
    oct_mx_rule rule;
    const oct_mx_out *out;
    const strip *strips; /* the index is the pair row of the col orientation */
    int64_t tiles;       /* per strip */
} mx_job;

static void mx_tile(void *arg, int64_t item, int thread)
{
    (void)thread;
    const mx_job *job = arg;
    const oct_lazy *source = job->x;
    const oct_mx_out *out = job->out;
    const int64_t pair = item / job->tiles, n = source->cols;
    const int64_t row = job->strips[pair].row, rows = job->strips[pair].rows;
    const int64_t col = item % job->tiles * TILE_COLS;
    const int64_t cols = oct_min_i64(TILE_COLS, n - col);
    const int64_t scale_ld = 2 * oct_ceil_div(n, 64);
    _Alignas(64) float made[STRIP_ROWS * TILE_COLS]; /* of either dtype */
    if (source->make)
        source->make(source->arg, row, rows, col, cols, made, TILE_COLS);
    const void *x = source->make ? made : oct_at(source->dtype, source->data, row * n + col);
    const int64_t ld = source->make ? TILE_COLS : n;
    if (out->row_codes)
        job->kernels->mx_rows(x, source->dtype, ld, rows, cols, job->rule,
                              out->row_codes + row * n + col, n,
                              out->row_scales + row * scale_ld + col / 32, scale_ld);
    if (out->col_codes)
        job->kernels->mx_cols(x, source->dtype, ld, rows, cols, job->rule,
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
    OCT_TRY(check_tensor(x, err));
    const oct_lazy stored = oct_lazy_of(x);
    return oct_mx_quantize_lazy(exec, &stored, groups, rule, out, err);
}

oct_status oct_mx_quantize_lazy(const oct_exec *exec, const oct_lazy *x, const oct_groups *groups,
                                oct_mx_rule rule, const oct_mx_out *out, oct_err *err)
{
    OCT_TRY(check_source(x, groups, err));
    if (!out->row_codes != !out->row_scales || !out->col_codes != !out->col_scales)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot quantize to MX: codes without scales (or the reverse), both are "
                        "required");
    const int64_t m = x->rows, n = x->cols;
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
    const oct_lazy *x;
    void *kept; /* where x is made, or NULL */
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

/* Elements that follow one another in memory. */
typedef struct piece {
    const void *data;
    int64_t count;
} piece;

/* The elements from `first` up to `end` at most: all of them if they are stored, else what was made
 * of one row, in job->kept or in `made`. */
static piece piece_of(const hif8_job *job, int64_t first, int64_t end, void *made)
{
    const oct_lazy *x = job->x;
    if (!x->make)
        return (piece){.data = oct_at(x->dtype, x->data, first), .count = end - first};
    const int64_t row = first / x->cols, col = first % x->cols;
    const int64_t in_row = oct_min_i64(x->cols - col, PIECE_ELEMENTS);
    const int64_t count = oct_min_i64(end - first, in_row);
    void *to = job->kept ? oct_at_mut(x->dtype, job->kept, first) : made;
    x->make(x->arg, row, 1, col, count, to, count);
    return (piece){.data = to, .count = count};
}

/* As bit patterns: a NaN wins. */
static float larger(float a, float b)
{
    return oct_f32_bits(a) > oct_f32_bits(b) ? a : b;
}

static void amax_run(void *arg, int64_t item, int thread)
{
    (void)thread;
    const hif8_job *job = arg;
    run *part = &job->runs[item];
    _Alignas(64) float made[PIECE_ELEMENTS];
    const int64_t end = part->first + part->count;
    piece next;
    part->amax = 0.0f;
    for (int64_t at = part->first; at < end; at += next.count) {
        next = piece_of(job, at, end, made);
        part->amax = larger(part->amax, job->kernels->amax(next.data, job->x->dtype, next.count));
    }
}

oct_status oct_hif8_amax(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                         float *amax, oct_err *err)
{
    OCT_TRY(check_tensor(x, err));
    const oct_lazy stored = oct_lazy_of(x);
    return oct_hif8_amax_lazy(exec, &stored, groups, NULL, amax, err);
}

oct_status oct_hif8_amax_lazy(const oct_exec *exec, const oct_lazy *x, const oct_groups *groups,
                              const oct_tensor *kept, float *amax, oct_err *err)
{
    OCT_TRY(check_source(x, groups, err));
    if (kept)
        OCT_TRY(oct_check_matrix("cannot keep what is quantized", "its place", kept, x->dtype,
                                 x->rows, x->cols, err));
    const oct_groups all = whole_or(groups, &x->rows);
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    hif8_job job = {.kernels = &exec->kernels->quantize, .x = x, .kept = kept ? kept->data : NULL};
    int64_t runs = 0;
    OCT_TRY(list_runs(exec, &all, x->cols, &job.runs, &runs, err));
    oct_parallel_for(exec->threads, runs, amax_run, &job);
    for (int64_t g = 0; g < all.count; g++)
        amax[g] = 0.0f;
    for (int64_t i = 0; i < runs; i++) {
        float *largest = &amax[job.runs[i].group];
        *largest = larger(*largest, job.runs[i].amax);
    }
    oct_arena_rewind(exec->scratch, mark);
    return OCT_OK;
}

static void encode_run(void *arg, int64_t item, int thread)
{
    (void)thread;
    const hif8_job *job = arg;
    const run *part = &job->runs[item];
    _Alignas(64) float made[PIECE_ELEMENTS];
    const int64_t end = part->first + part->count;
    piece next;
    for (int64_t at = part->first; at < end; at += next.count) {
        next = piece_of(job, at, end, made);
        job->kernels->hif8_encode(next.data, job->x->dtype, next.count, job->scales[part->group],
                                  job->saturate, job->codes + at);
    }
}

oct_status oct_hif8_quantize(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                             const float *scales, bool saturate, uint8_t *codes, oct_err *err)
{
    OCT_TRY(check_tensor(x, err));
    const oct_lazy stored = oct_lazy_of(x);
    return oct_hif8_quantize_lazy(exec, &stored, groups, scales, saturate, codes, err);
}

oct_status oct_hif8_quantize_lazy(const oct_exec *exec, const oct_lazy *x, const oct_groups *groups,
                                  const float *scales, bool saturate, uint8_t *codes, oct_err *err)
{
    OCT_TRY(check_source(x, groups, err));
    const oct_groups all = whole_or(groups, &x->rows);
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    hif8_job job = {.kernels = &exec->kernels->quantize,
                    .x = x,
                    .scales = scales,
                    .saturate = saturate,
                    .codes = codes};
    int64_t runs = 0;
    OCT_TRY(list_runs(exec, &all, x->cols, &job.runs, &runs, err));
    oct_parallel_for(exec->threads, runs, encode_run, &job);
    oct_arena_rewind(exec->scratch, mark);
    observe(
        exec,
        (oct_quantize_result){
            .kind = OCT_QUANTIZE_HIF8, .x = x, .groups = groups, .codes = codes, .scales = scales});
    return OCT_OK;
}
