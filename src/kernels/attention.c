/* The definition of the attention core, and its drivers.
 *
 * For one head of one sequence, i = query, j = key, both counted from the start of the sequence,
 * all arithmetic FP32, chain(x0; terms) = x0, then one fmaf per term in ascending order of the
 * index:
 *
 * Forward. Keys are taken in tiles J of 64, ascending (tile b is 64b .. 64b+63), up to j = i:
 *   1. s_ij = chain(0; q_id * k_jd over d) * scale
 *   2. m' = max(m, s_ij over j in J)        m starts at -FLT_MAX; a NaN score is passed over here
 *      p_ij = exp(s_ij - m')                which makes p_ij NaN in turn
 *      a = exp(m - m')
 *      l = fmaf(l, a, sum of p_ij over j in J ascending)                          l starts at 0
 *   3. o_ie = chain(o_ie * a; p_ij * v_je over j in J)                            o starts at 0
 *   4. out_ie = round(o_ie * (1 / l));  lse_i = m + log(l)
 * Backward, from q, k, v, out, lse and dout:
 *   5. delta_i = chain(0; dout_ie * out_ie over e)
 *   6. p_ij = exp(s_ij - lse_i), s_ij as in 1
 *   7. ds_ij = p_ij * (chain(0; v_je * dout_ie over e) - delta_i)
 *   8. dq_id = round(chain(0; k_jd * ds_ij over j = 0 .. i) * scale)
 *      dk_jd = round(chain(0; ds_ij * q_id over i = j .. end) * scale)
 *      dv_je = round(chain(0; p_ij * dout_ie over i = j .. end))
 * exp and log are those of numeric/fmath.h. Tiles of 64 queries only arrange the work: their size
 * is not visible in the result. Masked terms are left out, not multiplied by 0: a NaN of a later
 * token stays there.
 *
 * Every product has one operand whose elements are broadcast and one whose rows are read as
 * vectors: columns are queries in 1, 3, 7 and dq, head dims in dk and dv. So the query side is
 * transposed once per query tile and nothing is transposed in the loop over keys. */
#include "kernels/attention.h"

#include <float.h>
#include <math.h>

#include "base/size.h"
#include "base/threads.h"
#include "kernels/exec.h"
#include "numeric/fmath.h"

enum { TILE = OCT_ATTENTION_TILE, LANES = OCT_ATTENTION_LANES };

void oct_attention_kernels_init(oct_attention_kernels *kernels, oct_isa isa)
{
    oct_attention_kernels_ref(kernels);
#if defined(__x86_64__)
    if (isa >= OCT_ISA_AVX2)
        oct_attention_kernels_avx2(kernels);
    if (isa >= OCT_ISA_AVX512)
        oct_attention_kernels_avx512(kernels);
#else
    (void)isa;
#endif
}

/* --- arguments -------------------------------------------------------------------------------- */

static int64_t token_count(const oct_attention_shape *shape)
{
    return shape->sequences > 0 ? shape->cu_seqlens[shape->sequences] : 0;
}

static oct_status check_shape(const oct_attention_shape *shape, oct_err *err)
{
    if (shape->dtype != OCT_DTYPE_F32 && shape->dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot run attention: dtype %s, float32 or bfloat16 is required",
                        oct_dtype_name(shape->dtype));
    if (shape->heads < 0 || shape->sequences < 0 || shape->qk_dim < 1 || shape->v_dim < 1)
        return OCT_FAIL(
            err, OCT_E_SHAPE,
            "cannot run attention: heads %lld, sequences %lld, qk_dim %lld, v_dim %lld; "
            "counts >= 0 and dims >= 1 are required",
            (long long)shape->heads, (long long)shape->sequences, (long long)shape->qk_dim,
            (long long)shape->v_dim);
    for (int64_t b = 0; b <= shape->sequences && shape->sequences > 0; b++) {
        const int32_t from = b > 0 ? shape->cu_seqlens[b - 1] : 0;
        if (shape->cu_seqlens[b] < from || (b == 0 && shape->cu_seqlens[0] != 0))
            return OCT_FAIL(
                err, OCT_E_SHAPE, "cannot run attention: cu_seqlens[%lld] is %d, %s %d is required",
                (long long)b, shape->cu_seqlens[b], b == 0 ? "exactly" : "at least", from);
    }
    return OCT_OK;
}

/* Heads of an output must not be one another's storage. */
static oct_status check_output(const oct_attention_shape *shape, const oct_attention_view *view,
                               const char *name, oct_err *err)
{
    if (view->head_stride == 0 && shape->heads > 1)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot run attention: head_stride of %s is 0 with %lld heads, only inputs "
                        "may share a head",
                        name, (long long)shape->heads);
    return OCT_OK;
}

/* Rows of one head in a tensor, from token `token` on. */
static oct_attention_rows rows_at(const oct_attention_shape *shape, const oct_attention_view *view,
                                  int64_t token, int64_t head, int64_t rows, int64_t dim)
{
    const int64_t offset = token * view->token_stride + head * view->head_stride;
    return (oct_attention_rows){
        .data = (unsigned char *)view->data + offset * (int64_t)oct_dtype_bytes(shape->dtype),
        .dtype = shape->dtype,
        .stride = view->token_stride,
        .rows = rows,
        .dim = dim,
    };
}

static int64_t pad(int64_t n)
{
    return oct_ceil_div(n, LANES) * LANES;
}

/* --- working memory --------------------------------------------------------------------------- */

/* Tiles of one thread. D = qk_dim, E = v_dim, both padded to 16 lanes; Q queries and K keys of the
 * tiles, 64 each; L = tokens of the longest sequence. */
typedef struct tiles {
    float *q_QD, *q_DQ;
    float *k_KD, *v_KE;
    float *s_KQ; /* scores, then P */
    float *o_EQ; /* forward: out before its rounding; backward: out */
    /* forward only */
    float *max_Q, *sum_Q, *rescale_Q;
    /* backward only */
    float *lse_Q, *delta_Q;
    float *do_QE, *do_EQ;
    float *ds_KQ; /* dP, then dS */
    float *dq_DQ;
    float *dk_LD, *dv_LE;
} tiles;

static oct_status alloc_floats(oct_arena *arena, int64_t rows, int64_t cols, float **out,
                               oct_err *err)
{
    void *data = NULL;
    OCT_TRY(oct_arena_array(arena, rows, (size_t)cols * sizeof(float), &data, err));
    *out = data;
    return OCT_OK;
}

/* longest is L, 0 in the forward pass. */
static oct_status alloc_tiles(oct_arena *arena, const oct_attention_shape *shape, int64_t longest,
                              tiles *t, oct_err *err)
{
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim);
    *t = (tiles){0};
    OCT_TRY(alloc_floats(arena, TILE, D, &t->q_QD, err));
    OCT_TRY(alloc_floats(arena, D, TILE, &t->q_DQ, err));
    OCT_TRY(alloc_floats(arena, TILE, D, &t->k_KD, err));
    OCT_TRY(alloc_floats(arena, TILE, E, &t->v_KE, err));
    OCT_TRY(alloc_floats(arena, TILE, TILE, &t->s_KQ, err));
    OCT_TRY(alloc_floats(arena, E, TILE, &t->o_EQ, err));
    if (longest == 0) {
        OCT_TRY(alloc_floats(arena, 1, TILE, &t->max_Q, err));
        OCT_TRY(alloc_floats(arena, 1, TILE, &t->sum_Q, err));
        return alloc_floats(arena, 1, TILE, &t->rescale_Q, err);
    }
    OCT_TRY(alloc_floats(arena, 1, TILE, &t->lse_Q, err));
    OCT_TRY(alloc_floats(arena, 1, TILE, &t->delta_Q, err));
    OCT_TRY(alloc_floats(arena, TILE, E, &t->do_QE, err));
    OCT_TRY(alloc_floats(arena, E, TILE, &t->do_EQ, err));
    OCT_TRY(alloc_floats(arena, TILE, TILE, &t->ds_KQ, err));
    OCT_TRY(alloc_floats(arena, D, TILE, &t->dq_DQ, err));
    OCT_TRY(alloc_floats(arena, longest, D, &t->dk_LD, err));
    OCT_TRY(alloc_floats(arena, longest, E, &t->dv_LE, err));
    return OCT_OK;
}

int64_t oct_attention_work_bytes(int64_t qk_dim, int64_t v_dim, int64_t longest, int threads)
{
    const int64_t D = pad(qk_dim), E = pad(v_dim);
    const int64_t forward = TILE * (3 * D + 2 * E + TILE + 3);
    const int64_t backward = TILE * (D + 2 * E + TILE) + longest * (D + E);
    return (int64_t)threads * (int64_t)sizeof(float) * (forward + (longest ? backward : 0));
}

static oct_status alloc_thread_tiles(const oct_exec *exec, const oct_attention_shape *shape,
                                     int64_t longest, tiles **out, oct_err *err)
{
    void *data = NULL;
    OCT_TRY(oct_arena_array(exec->scratch, exec->threads, sizeof(tiles), &data, err));
    *out = data;
    for (int thread = 0; thread < exec->threads; thread++)
        OCT_TRY(alloc_tiles(exec->scratch, shape, longest, *out + thread, err));
    return OCT_OK;
}

static void fill(float *x, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

/* s_KQ = K Q^T, before the scale. */
static void scores(const oct_attention_kernels *kernels, const tiles *t, int64_t D, int64_t keys,
                   int64_t queries, int64_t qk_dim)
{
    kernels->product(&(oct_attention_product){.a = t->k_KD,
                                              .a_row = D,
                                              .a_depth = 1,
                                              .b = t->q_DQ,
                                              .ldb = TILE,
                                              .c = t->s_KQ,
                                              .ldc = TILE,
                                              .rows = keys,
                                              .cols = pad(queries),
                                              .depth = qk_dim});
}

/* --- forward ---------------------------------------------------------------------------------- */

/* One tile of queries of one sequence. */
typedef struct query_tile {
    int64_t sequence_start, first, rows; /* first is absolute; rows <= TILE */
} query_tile;

typedef struct forward_job {
    const oct_exec *exec;
    const oct_attention_shape *shape;
    const oct_attention_view *q, *k, *v, *out;
    float *lse_HT;
    tiles *thread_tiles;
    query_tile *query_tiles;
    int64_t query_tile_count, tokens;
} forward_job;

/* Steps 1 to 3 for the keys first .. first+keys-1. */
static void forward_keys(const forward_job *job, const tiles *t, int64_t head, int64_t first,
                         int64_t keys, int64_t queries, bool diagonal)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim);
    const oct_attention_rows k = rows_at(shape, job->k, first, head, keys, shape->qk_dim);
    const oct_attention_rows v = rows_at(shape, job->v, first, head, keys, shape->v_dim);
    kernels->load(&k, t->k_KD, D);
    kernels->load(&v, t->v_KE, E);
    scores(kernels, t, D, keys, queries, shape->qk_dim);
    kernels->softmax(t->s_KQ, keys, pad(queries), shape->softmax_scale, diagonal, t->max_Q,
                     t->sum_Q, t->rescale_Q);
    kernels->scale_columns(t->o_EQ, shape->v_dim, pad(queries), t->rescale_Q);
    kernels->product(&(oct_attention_product){.a = t->v_KE,
                                              .a_row = 1,
                                              .a_depth = E,
                                              .b = t->s_KQ,
                                              .ldb = TILE,
                                              .c = t->o_EQ,
                                              .ldc = TILE,
                                              .rows = shape->v_dim,
                                              .cols = pad(queries),
                                              .depth = keys,
                                              .accumulate = true,
                                              .terms = diagonal ? OCT_ATTENTION_TERMS_UP_TO_COLUMN
                                                                : OCT_ATTENTION_TERMS_ALL});
}

/* Step 4. */
static void forward_finish(const forward_job *job, const tiles *t, int64_t head,
                           const query_tile *tile)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t E = pad(shape->v_dim);
    float *lse = job->lse_HT + head * job->tokens + tile->first;
    for (int64_t i = 0; i < tile->rows; i++)
        lse[i] = t->max_Q[i] + oct_logf(t->sum_Q[i]);
    for (int64_t i = 0; i < TILE; i++)
        t->rescale_Q[i] = 1.0f / t->sum_Q[i];
    kernels->scale_columns(t->o_EQ, shape->v_dim, pad(tile->rows), t->rescale_Q);
    float *out_QE = t->v_KE; /* the values have done their service */
    kernels->transpose(t->o_EQ, TILE, E, pad(tile->rows), out_QE, E);
    const oct_attention_rows out =
        rows_at(shape, job->out, tile->first, head, tile->rows, shape->v_dim);
    kernels->store(out_QE, E, 1.0f, &out);
}

static void forward_tile(void *arg, int64_t item, int thread)
{
    const forward_job *job = arg;
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const tiles *t = &job->thread_tiles[thread];
    const int64_t head = item / job->query_tile_count;
    const query_tile *tile = &job->query_tiles[item % job->query_tile_count];
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim);

    const oct_attention_rows q =
        rows_at(shape, job->q, tile->first, head, tile->rows, shape->qk_dim);
    kernels->load(&q, t->q_QD, D);
    kernels->transpose(t->q_QD, D, pad(tile->rows), D, t->q_DQ, TILE);
    fill(t->max_Q, TILE, -FLT_MAX);
    fill(t->sum_Q, TILE, 0.0f);
    fill(t->o_EQ, E * TILE, 0.0f);
    for (int64_t first = tile->sequence_start; first < tile->first; first += TILE)
        forward_keys(job, t, head, first, TILE, tile->rows, false);
    forward_keys(job, t, head, tile->first, tile->rows, tile->rows, true);
    forward_finish(job, t, head, tile);
}

static oct_status list_query_tiles(forward_job *job, oct_err *err)
{
    const oct_attention_shape *shape = job->shape;
    void *data = NULL;
    int64_t count = 0;
    for (int64_t b = 0; b < shape->sequences; b++)
        count += oct_ceil_div(shape->cu_seqlens[b + 1] - shape->cu_seqlens[b], TILE);
    OCT_TRY(oct_arena_array(job->exec->scratch, count, sizeof(query_tile), &data, err));
    job->query_tiles = data;
    job->query_tile_count = count;
    query_tile *tile = job->query_tiles;
    for (int64_t b = 0; b < shape->sequences; b++) {
        const int64_t start = shape->cu_seqlens[b], end = shape->cu_seqlens[b + 1];
        for (int64_t first = start; first < end; first += TILE)
            *tile++ = (query_tile){
                .sequence_start = start, .first = first, .rows = oct_min_i64(TILE, end - first)};
    }
    return OCT_OK;
}

oct_status oct_attention(const oct_exec *exec, const oct_attention_shape *shape,
                         const oct_attention_view *q, const oct_attention_view *k,
                         const oct_attention_view *v, const oct_attention_view *out, float *lse_HT,
                         oct_err *err)
{
    OCT_TRY(check_shape(shape, err));
    OCT_TRY(check_output(shape, out, "out", err));
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    forward_job job = {.exec = exec,
                       .shape = shape,
                       .q = q,
                       .k = k,
                       .v = v,
                       .out = out,
                       .lse_HT = lse_HT,
                       .tokens = token_count(shape)};
    oct_status status = list_query_tiles(&job, err);
    if (status == OCT_OK)
        status = alloc_thread_tiles(exec, shape, 0, &job.thread_tiles, err);
    if (status == OCT_OK)
        oct_parallel_for(exec->threads, shape->heads * job.query_tile_count, forward_tile, &job);
    oct_arena_rewind(exec->scratch, mark);
    return status;
}

/* --- backward --------------------------------------------------------------------------------- */

typedef struct backward_job {
    const oct_exec *exec;
    const oct_attention_shape *shape;
    const oct_attention_view *q, *k, *v, *out, *dout, *dq, *dk, *dv;
    const float *lse_HT;
    tiles *thread_tiles;
    int64_t tokens;
} backward_job;

/* Steps 6 to 8 for one tile of queries (already in t) and the keys first .. first+keys-1 of a
 * sequence that starts at `start`. */
static void backward_keys(const backward_job *job, const tiles *t, int64_t head, int64_t start,
                          int64_t first, int64_t keys, int64_t queries, bool diagonal)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim), cols = pad(queries);
    const oct_attention_rows k = rows_at(shape, job->k, first, head, keys, shape->qk_dim);
    const oct_attention_rows v = rows_at(shape, job->v, first, head, keys, shape->v_dim);
    kernels->load(&k, t->k_KD, D);
    kernels->load(&v, t->v_KE, E);
    scores(kernels, t, D, keys, queries, shape->qk_dim);
    const oct_attention_product dp = {.a = t->v_KE,
                                      .a_row = E,
                                      .a_depth = 1,
                                      .b = t->do_EQ,
                                      .ldb = TILE,
                                      .c = t->ds_KQ,
                                      .ldc = TILE,
                                      .rows = keys,
                                      .cols = cols,
                                      .depth = shape->v_dim};
    kernels->product(&dp);
    kernels->softmax_backward(t->s_KQ, t->ds_KQ, keys, cols, shape->softmax_scale, t->lse_Q,
                              t->delta_Q);

    const oct_attention_product dv = {.a = t->s_KQ,
                                      .a_row = TILE,
                                      .a_depth = 1,
                                      .b = t->do_QE,
                                      .ldb = E,
                                      .c = t->dv_LE + (first - start) * E,
                                      .ldc = E,
                                      .rows = keys,
                                      .cols = E,
                                      .depth = queries,
                                      .accumulate = true,
                                      .terms = diagonal ? OCT_ATTENTION_TERMS_FROM_ROW
                                                        : OCT_ATTENTION_TERMS_ALL};
    kernels->product(&dv);
    const oct_attention_product dk = {.a = t->ds_KQ,
                                      .a_row = TILE,
                                      .a_depth = 1,
                                      .b = t->q_QD,
                                      .ldb = D,
                                      .c = t->dk_LD + (first - start) * D,
                                      .ldc = D,
                                      .rows = keys,
                                      .cols = D,
                                      .depth = queries,
                                      .accumulate = true,
                                      .terms = diagonal ? OCT_ATTENTION_TERMS_FROM_ROW
                                                        : OCT_ATTENTION_TERMS_ALL};
    kernels->product(&dk);
    const oct_attention_product dq = {.a = t->k_KD,
                                      .a_row = 1,
                                      .a_depth = D,
                                      .b = t->ds_KQ,
                                      .ldb = TILE,
                                      .c = t->dq_DQ,
                                      .ldc = TILE,
                                      .rows = shape->qk_dim,
                                      .cols = cols,
                                      .depth = keys,
                                      .accumulate = true,
                                      .terms = diagonal ? OCT_ATTENTION_TERMS_UP_TO_COLUMN
                                                        : OCT_ATTENTION_TERMS_ALL};
    kernels->product(&dq);
}

/* Loads the query side of a tile: q and dout both ways, lse, and delta (step 5). */
static void backward_load_queries(const backward_job *job, const tiles *t, int64_t head,
                                  int64_t first, int64_t queries)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim), cols = pad(queries);
    const oct_attention_rows q = rows_at(shape, job->q, first, head, queries, shape->qk_dim);
    const oct_attention_rows dout = rows_at(shape, job->dout, first, head, queries, shape->v_dim);
    const oct_attention_rows out = rows_at(shape, job->out, first, head, queries, shape->v_dim);
    kernels->load(&q, t->q_QD, D);
    kernels->transpose(t->q_QD, D, cols, D, t->q_DQ, TILE);
    kernels->load(&dout, t->do_QE, E);
    kernels->transpose(t->do_QE, E, cols, E, t->do_EQ, TILE);
    kernels->load(&out, t->v_KE, E);
    kernels->transpose(t->v_KE, E, cols, E, t->o_EQ, TILE);
    kernels->column_dots(t->do_EQ, t->o_EQ, shape->v_dim, cols, t->delta_Q);
    const float *lse = job->lse_HT + head * job->tokens + first;
    for (int64_t i = 0; i < TILE; i++)
        t->lse_Q[i] = i < queries ? lse[i] : 0.0f;
}

static void backward_store_dq(const backward_job *job, const tiles *t, int64_t head, int64_t first,
                              int64_t queries)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t D = pad(shape->qk_dim);
    float *dq_QD = t->q_QD; /* the queries have done their service */
    kernels->transpose(t->dq_DQ, TILE, D, pad(queries), dq_QD, D);
    const oct_attention_rows dq = rows_at(shape, job->dq, first, head, queries, shape->qk_dim);
    kernels->store(dq_QD, D, shape->softmax_scale, &dq);
}

/* One head of one sequence. */
static void backward_head(void *arg, int64_t item, int thread)
{
    const backward_job *job = arg;
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const tiles *t = &job->thread_tiles[thread];
    const int64_t head = item % shape->heads, sequence = item / shape->heads;
    const int64_t start = shape->cu_seqlens[sequence], end = shape->cu_seqlens[sequence + 1];
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim);

    fill(t->dk_LD, (end - start) * D, 0.0f);
    fill(t->dv_LE, (end - start) * E, 0.0f);
    for (int64_t query = start; query < end; query += TILE) {
        const int64_t queries = oct_min_i64(TILE, end - query);
        backward_load_queries(job, t, head, query, queries);
        fill(t->dq_DQ, D * TILE, 0.0f);
        for (int64_t key = start; key < query; key += TILE)
            backward_keys(job, t, head, start, key, TILE, queries, false);
        backward_keys(job, t, head, start, query, queries, queries, true);
        backward_store_dq(job, t, head, query, queries);
    }
    const oct_attention_rows dk = rows_at(shape, job->dk, start, head, end - start, shape->qk_dim);
    const oct_attention_rows dv = rows_at(shape, job->dv, start, head, end - start, shape->v_dim);
    kernels->store(t->dk_LD, D, shape->softmax_scale, &dk);
    kernels->store(t->dv_LE, E, 1.0f, &dv);
}

oct_status oct_attention_backward(const oct_exec *exec, const oct_attention_shape *shape,
                                  const oct_attention_view *q, const oct_attention_view *k,
                                  const oct_attention_view *v, const oct_attention_view *out,
                                  const float *lse_HT, const oct_attention_view *dout,
                                  const oct_attention_view *dq, const oct_attention_view *dk,
                                  const oct_attention_view *dv, oct_err *err)
{
    OCT_TRY(check_shape(shape, err));
    OCT_TRY(check_output(shape, dq, "dq", err));
    OCT_TRY(check_output(shape, dk, "dk", err));
    OCT_TRY(check_output(shape, dv, "dv", err));
    int64_t longest = 0;
    for (int64_t b = 0; b < shape->sequences; b++)
        longest = oct_max_i64(longest, shape->cu_seqlens[b + 1] - shape->cu_seqlens[b]);
    if (longest == 0)
        return OCT_OK;
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    backward_job job = {.exec = exec,
                        .shape = shape,
                        .q = q,
                        .k = k,
                        .v = v,
                        .out = out,
                        .dout = dout,
                        .dq = dq,
                        .dk = dk,
                        .dv = dv,
                        .lse_HT = lse_HT,
                        .tokens = token_count(shape)};
    const oct_status status = alloc_thread_tiles(exec, shape, longest, &job.thread_tiles, err);
    if (status == OCT_OK)
        oct_parallel_for(exec->threads, shape->heads * shape->sequences, backward_head, &job);
    oct_arena_rewind(exec->scratch, mark);
    return status;
}
