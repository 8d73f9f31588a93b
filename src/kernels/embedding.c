/* Embedding rows and the gradient of their table. */
#include <string.h>

#include "kernels/elementwise_drive.h"
#include "kernels/exec.h"

typedef struct gather_job {
    const oct_tensor *table, *y;
    const int32_t *ids_T;
} gather_job;

static void gather_rows(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const gather_job *job = arg;
    const oct_dtype dtype = job->y->dtype;
    const int64_t cols = oct_tensor_cols(job->y);
    const size_t bytes = (size_t)cols * oct_dtype_bytes(dtype);
    for (int64_t t = first; t < last; t++)
        memcpy(oct_at_mut(dtype, job->y->data, t * cols),
               oct_at(dtype, job->table->data, job->ids_T[t] * cols), bytes);
}

oct_status oct_embedding(const oct_exec *exec, const oct_tensor *table, const int32_t *ids_T,
                         const oct_tensor *y, oct_err *err)
{
    const int64_t rows = oct_tensor_rows(y), cols = oct_tensor_cols(y);
    OCT_TRY(oct_check_matrix("cannot embed", "y", y, y->dtype, rows, cols, err));
    OCT_TRY(oct_check_matrix("cannot embed", "the table", table, y->dtype, oct_tensor_rows(table),
                             cols, err));
    gather_job job = {.table = table, .y = y, .ids_T = ids_T};
    oct_for_ranges(exec, rows, cols, gather_rows, &job);
    return OCT_OK;
}

typedef struct table_gradient_job {
    const oct_elementwise_kernels *kernels;
    const oct_tensor *dy;
    const oct_gemm_out *dtable;
    const int32_t *begin_V; /* [V+1]: tokens of id v are order_T[begin_V[v] .. begin_V[v+1]) */
    const int32_t *order_T; /* ascending within an id */
    float *sums;            /* [threads, H] */
} table_gradient_job;

static void table_gradient_rows(void *arg, int64_t first, int64_t last, int thread)
{
    const table_gradient_job *job = arg;
    const int64_t cols = oct_tensor_cols(job->dy);
    const oct_dtype dtype = job->dy->dtype;
    float *sums = job->sums + thread * cols;
    for (int64_t v = first; v < last; v++) {
        memset(sums, 0, (size_t)cols * sizeof *sums);
        for (int32_t i = job->begin_V[v]; i < job->begin_V[v + 1]; i++)
            job->kernels->accumulate(dtype, cols,
                                     oct_at(dtype, job->dy->data, job->order_T[i] * cols), sums);
        job->kernels->store_row(
            job->dtable, cols, sums,
            oct_at_mut(job->dtable->dtype, job->dtable->data, v * job->dtable->ld));
    }
}

/* Counting sort of the tokens by id. begin_V is [vocab + 1]. */
static void sort_by_id(const int32_t *ids_T, int64_t tokens, int64_t vocab, int32_t *begin_V,
                       int32_t *order_T)
{
    memset(begin_V, 0, (size_t)(vocab + 1) * sizeof *begin_V);
    for (int64_t t = 0; t < tokens; t++)
        begin_V[ids_T[t] + 1]++;
    for (int64_t v = 0; v < vocab; v++)
        begin_V[v + 1] += begin_V[v];
    for (int64_t t = 0; t < tokens; t++)
        order_T[begin_V[ids_T[t]]++] = (int32_t)t;
    /* Filling moved every begin to the next one's place. */
    memmove(begin_V + 1, begin_V, (size_t)vocab * sizeof *begin_V);
    begin_V[0] = 0;
}

oct_status oct_embedding_backward(const oct_exec *exec, const oct_tensor *dy, const int32_t *ids_T,
                                  int64_t vocab, const oct_gemm_out *dtable, oct_err *err)
{
    const char *what = "cannot sum the embedding gradient";
    const int64_t rows = oct_tensor_rows(dy), cols = oct_tensor_cols(dy);
    OCT_TRY(oct_check_matrix(what, "dy", dy, dy->dtype, rows, cols, err));
    OCT_TRY(oct_check_gradient_out(what, dtable, err));
    if (rows > INT32_MAX || vocab < 0 || vocab >= INT32_MAX || dtable->ld < cols)
        return OCT_FAIL(
            err, OCT_E_SHAPE,
            "%s: %lld tokens, %lld ids, row stride %lld, less than 2^31 tokens and ids and "
            "a stride of %lld or more are required",
            what, (long long)rows, (long long)vocab, (long long)dtable->ld, (long long)cols);

    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    void *begin_V = NULL, *order_T = NULL, *sums = NULL;
    oct_status status = oct_arena_array(exec->scratch, vocab + 1, sizeof(int32_t), &begin_V, err);
    if (status == OCT_OK)
        status = oct_arena_array(exec->scratch, rows, sizeof(int32_t), &order_T, err);
    if (status == OCT_OK)
        status = oct_arena_array(exec->scratch, exec->threads * cols, sizeof(float), &sums, err);
    if (status == OCT_OK) {
        sort_by_id(ids_T, rows, vocab, begin_V, order_T);
        table_gradient_job job = {.kernels = &exec->kernels->elementwise,
                                  .dy = dy,
                                  .dtable = dtable,
                                  .begin_V = begin_V,
                                  .order_T = order_T,
                                  .sums = sums};
        oct_for_ranges(exec, vocab, cols, table_gradient_rows, &job);
    }
    oct_arena_rewind(exec->scratch, mark);
    return status;
}
