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
 * A tile of keys is loaded once for a block of query tiles, which stay in the second cache: rows of
 * one head are far apart, a page in the usual layout, and are widened to FP32.
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

/* Tiles of queries that share one load of their keys: as many as the second cache holds beside a
 * tile of keys. Not visible in the result. */
enum { FORWARD_TILES = 4, BACKWARD_TILES = 2 };

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

/* D = qk_dim, E = v_dim, both padded to 16 lanes; Q queries and K keys of the tiles, 64 each; L =
 * tokens of the longest sequence. */

/* One tile of queries. */
typedef struct query_side {
    int64_t first, rows; /* from token `first` on; rows <= TILE */
    float *q_DQ;
    float *o_EQ;          /* forward: out before its rounding */
    float *max_Q, *sum_Q; /* forward; backward: lse and delta */
    /* backward only */
    float *q_QD, *do_QE, *do_EQ, *dq_DQ;
} query_side;

/* Memory of one thread. */
typedef struct tiles {
    query_side queries[FORWARD_TILES]; /* the backward pass takes BACKWARD_TILES of them */
    float *rows_QX;                    /* rows on their way in or out, X = D or E */
    float *k_KD, *v_KE;
    float *s_KQ;      /* scores, then P */
    float *rescale_Q; /* forward only */
    /* backward only */
    float *ds_KQ; /* dP, then dS */
    float *o_EQ;
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

static oct_status alloc_queries(oct_arena *arena, int64_t D, int64_t E, bool backward,
                                query_side *q, oct_err *err)
{
    *q = (query_side){0};
    OCT_TRY(alloc_floats(arena, D, TILE, &q->q_DQ, err));
    OCT_TRY(alloc_floats(arena, 1, TILE, &q->max_Q, err));
    OCT_TRY(alloc_floats(arena, 1, TILE, &q->sum_Q, err));
    if (!backward)
        return alloc_floats(arena, E, TILE, &q->o_EQ, err);
    OCT_TRY(alloc_floats(arena, TILE, D, &q->q_QD, err));
    OCT_TRY(alloc_floats(arena, TILE, E, &q->do_QE, err));
    OCT_TRY(alloc_floats(arena, E, TILE, &q->do_EQ, err));
    return alloc_floats(arena, D, TILE, &q->dq_DQ, err);
}

/* longest is L, 0 in the forward pass. */
static oct_status alloc_tiles(oct_arena *arena, const oct_attention_shape *shape, int64_t longest,
                              tiles *t, oct_err *err)
{
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim);
    const bool backward = longest > 0;
    *t = (tiles){0};
    for (int i = 0; i < (backward ? BACKWARD_TILES : FORWARD_TILES); i++)
        OCT_TRY(alloc_queries(arena, D, E, backward, &t->queries[i], err));
    OCT_TRY(alloc_floats(arena, TILE, oct_max_i64(D, E), &t->rows_QX, err));
    OCT_TRY(alloc_floats(arena, TILE, D, &t->k_KD, err));
    OCT_TRY(alloc_floats(arena, TILE, E, &t->v_KE, err));
    OCT_TRY(alloc_floats(arena, TILE, TILE, &t->s_KQ, err));
    if (!backward)
        return alloc_floats(arena, 1, TILE, &t->rescale_Q, err);
    OCT_TRY(alloc_floats(arena, TILE, TILE, &t->ds_KQ, err));
    OCT_TRY(alloc_floats(arena, E, TILE, &t->o_EQ, err));
    OCT_TRY(alloc_floats(arena, longest, D, &t->dk_LD, err));
    OCT_TRY(alloc_floats(arena, longest, E, &t->dv_LE, err));
    return OCT_OK;
}

int64_t oct_attention_work_bytes(int64_t qk_dim, int64_t v_dim, int64_t longest, int threads)
{
    const int64_t D = pad(qk_dim), E = pad(v_dim);
    int64_t floats = TILE * (oct_max_i64(D, E) + D + E + TILE); /* keys and scores */
    if (longest == 0)
        floats += TILE * (FORWARD_TILES * (D + E + 2) + 1);
    else
        floats += TILE * (BACKWARD_TILES * (3 * D + 2 * E + 2) + TILE + E) + longest * (D + E);
    return (int64_t)threads * (int64_t)sizeof(float) * floats;
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

/* Cuts rows `first` .. `end`-1 into the tiles of a block; returns their number. */
static int64_t cut_block(tiles *t, int64_t first, int64_t end)
{
    int64_t count = 0;
    for (; first < end; first += TILE, count++) {
        t->queries[count].first = first;
        t->queries[count].rows = oct_min_i64(TILE, end - first);
    }
    return count;
}

/* Loads the keys first .. first+keys-1 and their values. */
static void load_keys(const oct_attention_kernels *kernels, const oct_attention_shape *shape,
                      const oct_attention_view *k, const oct_attention_view *v, const tiles *t,
                      int64_t head, int64_t first, int64_t keys)
{
    const oct_attention_rows k_rows = rows_at(shape, k, first, head, keys, shape->qk_dim);
    const oct_attention_rows v_rows = rows_at(shape, v, first, head, keys, shape->v_dim);
    kernels->load(&k_rows, t->k_KD, pad(shape->qk_dim));
    kernels->load(&v_rows, t->v_KE, pad(shape->v_dim));
}

static void fill(float *x, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

/* s_KQ = K Q^T, before the scale. */
static void scores(const oct_attention_kernels *kernels, const tiles *t, const query_side *q,
                   int64_t keys, bool diagonal, int64_t qk_dim)
{
    kernels->product(&(oct_attention_product){
        .a = t->k_KD,
        .a_row = pad(qk_dim),
        .a_depth = 1,
        .b = q->q_DQ,
        .ldb = TILE,
        .c = t->s_KQ,
        .ldc = TILE,
        .rows = keys,
        .cols = pad(q->rows),
        .depth = qk_dim,
        .terms = diagonal ? OCT_ATTENTION_TERMS_ALL_FROM_ROW_ON : OCT_ATTENTION_TERMS_ALL});
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Up to FORWARD_TILES tiles of queries of one sequence: tokens first .. end-1. */
typedef struct query_block {
    int64_t sequence_start, first, end;
} query_block;

typedef struct forward_job {
    const oct_exec *exec;
    const oct_attention_shape *shape;
    const oct_attention_view *q, *k, *v, *out;
    float *lse_HT;
    tiles *thread_tiles;
    query_block *blocks;
    int64_t block_count, tokens;
} forward_job;

static void forward_load_queries(const forward_job *job, const tiles *t, int64_t head,
                                 const query_side *q)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim);
    const oct_attention_rows rows = rows_at(shape, job->q, q->first, head, q->rows, shape->qk_dim);
    kernels->load(&rows, t->rows_QX, D);
    kernels->transpose(t->rows_QX, D, pad(q->rows), D, q->q_DQ, TILE);
    fill(q->max_Q, TILE, -FLT_MAX);
    fill(q->sum_Q, TILE, 0.0f);
    fill(q->o_EQ, E * TILE, 0.0f);
}

/* Steps 1 to 3 for the keys in t. */
static void forward_keys(const forward_job *job, const tiles *t, const query_side *q, int64_t keys,
                         bool diagonal)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t cols = pad(q->rows);
    scores(kernels, t, q, keys, diagonal, shape->qk_dim);
    kernels->softmax(t->s_KQ, keys, cols, shape->softmax_scale, diagonal, q->max_Q, q->sum_Q,
                     t->rescale_Q);
    kernels->scale_columns(q->o_EQ, shape->v_dim, cols, t->rescale_Q);
    kernels->product(&(oct_attention_product){.a = t->v_KE,
                                              .a_row = 1,
                                              .a_depth = pad(shape->v_dim),
                                              .b = t->s_KQ,
                                              .ldb = TILE,
                                              .c = q->o_EQ,
                                              .ldc = TILE,
                                              .rows = shape->v_dim,
                                              .cols = cols,
                                              .depth = keys,
                                              .accumulate = true,
                                              .terms = diagonal ? OCT_ATTENTION_TERMS_UP_TO_COLUMN
                                                                : OCT_ATTENTION_TERMS_ALL});
}

/* Step 4. */
static void forward_finish(const forward_job *job, const tiles *t, int64_t head,
                           const query_side *q)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t E = pad(shape->v_dim);
    float *lse = job->lse_HT + head * job->tokens + q->first;
    for (int64_t i = 0; i < q->rows; i++)
        lse[i] = q->max_Q[i] + oct_logf(q->sum_Q[i]);
    for (int64_t i = 0; i < TILE; i++)
        t->rescale_Q[i] = 1.0f / q->sum_Q[i];
    kernels->scale_columns(q->o_EQ, shape->v_dim, pad(q->rows), t->rescale_Q);
    kernels->transpose(q->o_EQ, TILE, E, pad(q->rows), t->rows_QX, E);
    const oct_attention_rows out = rows_at(shape, job->out, q->first, head, q->rows, shape->v_dim);
    kernels->store(t->rows_QX, E, 1.0f, &out);
}

static void forward_block(void *arg, int64_t item, int thread)
{
    const forward_job *job = arg;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    tiles *t = &job->thread_tiles[thread];
    const int64_t head = item / job->block_count;
    const query_block *block = &job->blocks[item % job->block_count];
    const int64_t count = cut_block(t, block->first, block->end);

    for (int64_t i = 0; i < count; i++)
        forward_load_queries(job, t, head, &t->queries[i]);
    for (int64_t first = block->sequence_start; first < block->end; first += TILE) {
        const int64_t keys = oct_min_i64(TILE, block->end - first);
        load_keys(kernels, job->shape, job->k, job->v, t, head, first, keys);
        for (int64_t i = 0; i < count; i++)
            if (t->queries[i].first >= first)
                forward_keys(job, t, &t->queries[i], keys, t->queries[i].first == first);
    }
    for (int64_t i = 0; i < count; i++)
        forward_finish(job, t, head, &t->queries[i]);
}

/* Blocks are smaller where the heads alone would not keep the threads busy. */
static oct_status list_blocks(forward_job *job, oct_err *err)
{
    const oct_attention_shape *shape = job->shape;
    int64_t count = 0, rows = FORWARD_TILES * TILE;
    while (rows > TILE && job->tokens / rows * shape->heads < 8 * job->exec->threads)
        rows /= 2;
    for (int64_t b = 0; b < shape->sequences; b++)
        count += oct_ceil_div(shape->cu_seqlens[b + 1] - shape->cu_seqlens[b], rows);
    void *data = NULL;
    OCT_TRY(oct_arena_array(job->exec->scratch, count, sizeof(query_block), &data, err));
    job->blocks = data;
    job->block_count = count;
    query_block *block = job->blocks;
    for (int64_t b = 0; b < shape->sequences; b++) {
        const int64_t start = shape->cu_seqlens[b], end = shape->cu_seqlens[b + 1];
        for (int64_t first = start; first < end; first += rows)
            *block++ = (query_block){
                .sequence_start = start, .first = first, .end = oct_min_i64(end, first + rows)};
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
    oct_status status = list_blocks(&job, err);
    if (status == OCT_OK)
        status = alloc_thread_tiles(exec, shape, 0, &job.thread_tiles, err);
    if (status == OCT_OK)
        oct_parallel_for(exec->threads, shape->heads * job.block_count, forward_block, &job);
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

/* Steps 6 to 8 for one tile of queries and the keys in t, which are the tokens first ..
 * first+keys-1 of their sequence. */
static void backward_keys(const backward_job *job, const tiles *t, const query_side *q,
                          int64_t first, int64_t keys, bool diagonal)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim), cols = pad(q->rows);
    scores(kernels, t, q, keys, diagonal, shape->qk_dim);
    const oct_attention_product dp = {.a = t->v_KE,
                                      .a_row = E,
                                      .a_depth = 1,
                                      .b = q->do_EQ,
                                      .ldb = TILE,
                                      .c = t->ds_KQ,
                                      .ldc = TILE,
                                      .rows = keys,
                                      .cols = cols,
                                      .depth = shape->v_dim,
                                      .terms = diagonal ? OCT_ATTENTION_TERMS_ALL_FROM_ROW_ON
                                                        : OCT_ATTENTION_TERMS_ALL};
    kernels->product(&dp);
    kernels->softmax_backward(t->s_KQ, t->ds_KQ, keys, cols, shape->softmax_scale, diagonal,
                              q->max_Q, q->sum_Q);

    const oct_attention_product dv = {.a = t->s_KQ,
                                      .a_row = TILE,
                                      .a_depth = 1,
                                      .b = q->do_QE,
                                      .ldb = E,
                                      .c = t->dv_LE + first * E,
                                      .ldc = E,
                                      .rows = keys,
                                      .cols = E,
                                      .depth = q->rows,
                                      .accumulate = true,
                                      .terms = diagonal ? OCT_ATTENTION_TERMS_FROM_ROW
                                                        : OCT_ATTENTION_TERMS_ALL};
    kernels->product(&dv);
    const oct_attention_product dk = {.a = t->ds_KQ,
                                      .a_row = TILE,
                                      .a_depth = 1,
                                      .b = q->q_QD,
                                      .ldb = D,
                                      .c = t->dk_LD + first * D,
                                      .ldc = D,
                                      .rows = keys,
                                      .cols = D,
                                      .depth = q->rows,
                                      .accumulate = true,
                                      .terms = diagonal ? OCT_ATTENTION_TERMS_FROM_ROW
                                                        : OCT_ATTENTION_TERMS_ALL};
    kernels->product(&dk);
    const oct_attention_product dq = {.a = t->k_KD,
                                      .a_row = 1,
                                      .a_depth = D,
                                      .b = t->ds_KQ,
                                      .ldb = TILE,
                                      .c = q->dq_DQ,
                                      .ldc = TILE,
                                      .rows = shape->qk_dim,
                                      .cols = cols,
                                      .depth = keys,
                                      .accumulate = true,
                                      .terms = diagonal ? OCT_ATTENTION_TERMS_UP_TO_COLUMN
                                                        : OCT_ATTENTION_TERMS_ALL};
    kernels->product(&dq);
}

/* Loads q and dout both ways and lse; delta (step 5). */
static void backward_load_queries(const backward_job *job, const tiles *t, int64_t head,
                                  const query_side *q)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim), cols = pad(q->rows);
    const oct_attention_rows q_rows =
        rows_at(shape, job->q, q->first, head, q->rows, shape->qk_dim);
    const oct_attention_rows dout =
        rows_at(shape, job->dout, q->first, head, q->rows, shape->v_dim);
    const oct_attention_rows out = rows_at(shape, job->out, q->first, head, q->rows, shape->v_dim);
    kernels->load(&q_rows, q->q_QD, D);
    kernels->transpose(q->q_QD, D, cols, D, q->q_DQ, TILE);
    kernels->load(&dout, q->do_QE, E);
    kernels->transpose(q->do_QE, E, cols, E, q->do_EQ, TILE);
    kernels->load(&out, t->rows_QX, E);
    kernels->transpose(t->rows_QX, E, cols, E, t->o_EQ, TILE);
    kernels->column_dots(q->do_EQ, t->o_EQ, shape->v_dim, cols, q->sum_Q);
    const float *lse = job->lse_HT + head * job->tokens + q->first;
    for (int64_t i = 0; i < TILE; i++)
        q->max_Q[i] = i < q->rows ? lse[i] : 0.0f;
    fill(q->dq_DQ, D * TILE, 0.0f);
}

static void backward_store_dq(const backward_job *job, const tiles *t, int64_t head,
                              const query_side *q)
{
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    const int64_t D = pad(shape->qk_dim);
    kernels->transpose(q->dq_DQ, TILE, D, pad(q->rows), t->rows_QX, D);
    const oct_attention_rows dq = rows_at(shape, job->dq, q->first, head, q->rows, shape->qk_dim);
    kernels->store(t->rows_QX, D, shape->softmax_scale, &dq);
}

/* One head of one sequence. */
static void backward_head(void *arg, int64_t item, int thread)
{
    const backward_job *job = arg;
    const oct_attention_shape *shape = job->shape;
    const oct_attention_kernels *kernels = &job->exec->kernels->attention;
    tiles *t = &job->thread_tiles[thread];
    const int64_t head = item % shape->heads, sequence = item / shape->heads;
    const int64_t start = shape->cu_seqlens[sequence], end = shape->cu_seqlens[sequence + 1];
    const int64_t D = pad(shape->qk_dim), E = pad(shape->v_dim);

    fill(t->dk_LD, (end - start) * D, 0.0f);
    fill(t->dv_LE, (end - start) * E, 0.0f);
    for (int64_t block = start; block < end; block += BACKWARD_TILES * TILE) {
        const int64_t block_end = oct_min_i64(end, block + BACKWARD_TILES * TILE);
        const int64_t count = cut_block(t, block, block_end);
        for (int64_t i = 0; i < count; i++)
            backward_load_queries(job, t, head, &t->queries[i]);
        for (int64_t first = start; first < block_end; first += TILE) {
            const int64_t keys = oct_min_i64(TILE, block_end - first);
            load_keys(kernels, shape, job->k, job->v, t, head, first, keys);
            for (int64_t i = 0; i < count; i++)
                if (t->queries[i].first >= first)
                    backward_keys(job, t, &t->queries[i], first - start, keys,
                                  t->queries[i].first == first);
        }
        for (int64_t i = 0; i < count; i++)
            backward_store_dq(job, t, head, &t->queries[i]);
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
