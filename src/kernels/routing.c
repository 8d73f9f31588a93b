/* The router's choice of experts, and the moves of token rows to experts and back. */
#include <math.h>
#include <string.h>

#include "kernels/elementwise_drive.h"
#include "kernels/exec.h"

/* --- choice ------------------------------------------------------------------------------------
 */

/* Added to the sum that normalises the weights (DeepSeek-V3). */
static const float WEIGHT_SUM_EPS = 1e-20f;

typedef enum candidate { EXCLUDED, OPEN, CHOSEN } candidate;

/* Working memory of one thread. */
typedef struct choice_work {
    float *choice_E, *group_score_G;
    candidate *experts_E, *groups_G;
} choice_work;

typedef struct router_job {
    const oct_elementwise_kernels *kernels;
    oct_router_config config;
    const float *logits_TE;
    const float *bias_E;
    float *scores_TE;
    int32_t *experts_TK;
    float *weights_TK;
    float *values;         /* [threads, E + G] */
    candidate *candidates; /* [threads, E + G] */
} router_job;

/* NaN ranks with +Inf: so it is chosen, reaches the weights and is seen downstream. */
static float rank_of(float value)
{
    return isnan(value) ? INFINITY : value;
}

/* Marks the open candidate of the highest value as chosen; ties go to the lower index. */
static void choose_best(const float *values, candidate *candidates, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (candidates[i] == OPEN && (best < 0 || values[i] > values[best]))
            best = i;
    candidates[best] = CHOSEN;
}

static float sum_of_two_largest(const float *values, int64_t n)
{
    float first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (values[i] > first) {
            second = first;
            first = values[i];
        } else if (values[i] > second) {
            second = values[i];
        }
    }
    return first + second;
}

/* Opens the experts of the top_groups groups with the highest scores and excludes the others, which
 * is what -inf in their choice values does. */
static void open_groups(const oct_router_config *config, const choice_work *work)
{
    const int64_t size = config->experts / config->groups;
    for (int64_t g = 0; g < config->groups; g++) {
        work->groups_G[g] = OPEN;
        work->group_score_G[g] = rank_of(sum_of_two_largest(work->choice_E + g * size, size));
    }
    for (int64_t i = 0; i < config->top_groups; i++)
        choose_best(work->group_score_G, work->groups_G, config->groups);
    for (int64_t e = 0; e < config->experts; e++)
        work->experts_E[e] = work->groups_G[e / size] == CHOSEN ? OPEN : EXCLUDED;
}

/* Sum of the chosen experts' scores, ascending, plus the epsilon. */
static float weight_sum(const float *scores_E, const int32_t *experts_K, int64_t top_k)
{
    float sum = scores_E[experts_K[0]];
    for (int64_t k = 1; k < top_k; k++)
        sum += scores_E[experts_K[k]];
    return sum + WEIGHT_SUM_EPS;
}

static void choose_experts(const oct_router_config *config, const float *scores_E,
                           const float *bias_E, const choice_work *work, int32_t *experts_K,
                           float *weights_K)
{
    for (int64_t e = 0; e < config->experts; e++) {
        work->choice_E[e] = rank_of(scores_E[e] + bias_E[e]);
        work->experts_E[e] = OPEN;
    }
    if (config->top_groups < config->groups)
        open_groups(config, work);
    for (int64_t k = 0; k < config->top_k; k++)
        choose_best(work->choice_E, work->experts_E, config->experts);

    int64_t k = 0;
    for (int64_t e = 0; e < config->experts; e++)
        if (work->experts_E[e] == CHOSEN)
            experts_K[k++] = (int32_t)e;
    /* The weights come from the scores: the bias steers the choice only. */
    const float sum = config->normalise ? weight_sum(scores_E, experts_K, config->top_k) : 1.0f;
    for (k = 0; k < config->top_k; k++) {
        const float score = scores_E[experts_K[k]];
        weights_K[k] = (config->normalise ? score / sum : score) * config->scaling_factor;
    }
}

static void router_tokens(void *arg, int64_t first, int64_t last, int thread)
{
    const router_job *job = arg;
    const oct_router_config *config = &job->config;
    const int64_t experts = config->experts, top_k = config->top_k;
    const int64_t own = thread * (experts + config->groups);
    const choice_work work = {.choice_E = job->values + own,
                              .group_score_G = job->values + own + experts,
                              .experts_E = job->candidates + own,
                              .groups_G = job->candidates + own + experts};
    for (int64_t t = first; t < last; t++) {
        float *scores_E = job->scores_TE + t * experts;
        job->kernels->sigmoid(experts, job->logits_TE + t * experts, scores_E);
        choose_experts(config, scores_E, job->bias_E, &work, job->experts_TK + t * top_k,
                       job->weights_TK + t * top_k);
    }
}

static oct_status check_router(const oct_router_config *config, const oct_tensor *logits,
                               oct_err *err)
{
    const char *what = "cannot route";
    OCT_TRY(oct_check_matrix(what, "logits", logits, OCT_DTYPE_F32, oct_tensor_rows(logits),
                             config->experts, err));
    if (config->experts < 1 || config->experts > INT32_MAX || config->groups < 1 ||
        config->experts % config->groups != 0 || config->top_groups < 1 ||
        config->top_groups > config->groups)
        return OCT_FAIL(
            err, OCT_E_SHAPE,
            "%s: %lld experts in %lld groups, best %lld groups; equal groups of which 1 "
            "to all are kept are required",
            what, (long long)config->experts, (long long)config->groups,
            (long long)config->top_groups);
    const int64_t size = config->experts / config->groups;
    if (config->top_groups < config->groups && size < 2)
        return OCT_FAIL(err, OCT_E_SHAPE, "%s: groups of one expert, 2 or more are required", what);
    if (config->top_k < 1 || config->top_k > config->top_groups * size)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "%s: %lld experts per token, 1 to %lld (those of %lld groups) are required",
                        what, (long long)config->top_k, (long long)(config->top_groups * size),
                        (long long)config->top_groups);
    return OCT_OK;
}

oct_status oct_router(const oct_exec *exec, const oct_router_config *config,
                      const oct_tensor *logits, const float *bias_E, float *scores_TE,
                      int32_t *experts_TK, float *weights_TK, oct_err *err)
{
    OCT_TRY(check_router(config, logits, err));
    const int64_t work = exec->threads * (config->experts + config->groups);
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    void *values = NULL, *candidates = NULL;
    oct_status status = oct_arena_array(exec->scratch, work, sizeof(float), &values, err);
    if (status == OCT_OK)
        status = oct_arena_array(exec->scratch, work, sizeof(candidate), &candidates, err);
    if (status == OCT_OK) {
        router_job job = {.kernels = &exec->kernels->elementwise,
                          .config = *config,
                          .logits_TE = logits->data,
                          .bias_E = bias_E,
                          .scores_TE = scores_TE,
                          .experts_TK = experts_TK,
                          .weights_TK = weights_TK,
                          .values = values,
                          .candidates = candidates};
        oct_for_ranges(exec, oct_tensor_rows(logits), config->experts * config->top_k,
                       router_tokens, &job);
    }
    oct_arena_rewind(exec->scratch, mark);
    return status;
}

typedef struct router_backward_job {
    oct_router_config config;
    const float *scores_TE;
    const int32_t *experts_TK;
    const float *weights_TK, *dweights_TK;
    float *dlogits_TE;
} router_backward_job;

/* w_k = c s_k / D, D = sum of s + eps: ds_k = (c dw_k - sum_j dw_j w_j) / D; without normalisation
 * ds_k = c dw_k. dlogit = ds s (1 - s). The choice itself has no gradient. */
static void router_backward_tokens(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const router_backward_job *job = arg;
    const oct_router_config *config = &job->config;
    const int64_t top_k = config->top_k;
    for (int64_t t = first; t < last; t++) {
        const float *scores_E = job->scores_TE + t * config->experts;
        const int32_t *experts_K = job->experts_TK + t * top_k;
        const float *weights_K = job->weights_TK + t * top_k;
        const float *dweights_K = job->dweights_TK + t * top_k;
        float *dlogits_E = job->dlogits_TE + t * config->experts;

        float sum = 1.0f, shared = 0.0f;
        if (config->normalise) {
            sum = weight_sum(scores_E, experts_K, top_k);
            for (int64_t k = 0; k < top_k; k++)
                shared += dweights_K[k] * weights_K[k];
        }
        memset(dlogits_E, 0, (size_t)config->experts * sizeof *dlogits_E);
        for (int64_t k = 0; k < top_k; k++) {
            const float s = scores_E[experts_K[k]];
            const float ds = (config->scaling_factor * dweights_K[k] - shared) / sum;
            dlogits_E[experts_K[k]] = ds * (s * (1.0f - s));
        }
    }
}

oct_status oct_router_backward(const oct_exec *exec, const oct_router_config *config,
                               const float *scores_TE, const int32_t *experts_TK,
                               const float *weights_TK, const float *dweights_TK,
                               const oct_tensor *dlogits, oct_err *err)
{
    OCT_TRY(check_router(config, dlogits, err));
    router_backward_job job = {.config = *config,
                               .scores_TE = scores_TE,
                               .experts_TK = experts_TK,
                               .weights_TK = weights_TK,
                               .dweights_TK = dweights_TK,
                               .dlogits_TE = dlogits->data};
    oct_for_ranges(exec, oct_tensor_rows(dlogits), config->experts, router_backward_tokens, &job);
    return OCT_OK;
}

/* --- rows in expert order ----------------------------------------------------------------------
 */

void oct_route_sort(const int32_t *experts_TK, int64_t tokens, int64_t top_k, int64_t experts,
                    int64_t *group_ends_E, int32_t *source_S, int32_t *row_TK)
{
    const int64_t pairs = tokens * top_k;
    memset(group_ends_E, 0, (size_t)experts * sizeof *group_ends_E);
    for (int64_t i = 0; i < pairs; i++)
        group_ends_E[experts_TK[i]]++;
    int64_t begin = 0;
    for (int64_t e = 0; e < experts; e++) {
        const int64_t count = group_ends_E[e];
        group_ends_E[e] = begin;
        begin += count;
    }
    /* Each begin walks to its end as its rows are placed. */
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t row = group_ends_E[experts_TK[i]]++;
        source_S[row] = (int32_t)i;
        row_TK[i] = (int32_t)row;
    }
}

typedef struct route_job {
    const oct_elementwise_kernels *kernels;
    oct_dtype dtype;
    int64_t top_k, cols;
    const void *x;
    void *y;
    const int32_t *row_TK;
    const float *weights_TK;
    const void *addend;
    const void *dy; /* combine backward */
    float *dweights_TK;
} route_job;

/* Rows of tokens lie anywhere: the hardware does not foresee the next one. */
enum { AHEAD_ROWS = 2, CACHE_LINE = 64 };

static inline __attribute__((always_inline)) void prefetch(const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += CACHE_LINE)
        __builtin_prefetch((const char *)data + at);
}

static void make_rows(const void *arg, int64_t row, int64_t rows, int64_t col, int64_t cols,
                      void *tile, int64_t ld)
{
    const oct_routed *routed = arg;
    const oct_dtype dtype = routed->x.dtype;
    const int64_t x_cols = oct_tensor_cols(&routed->x);
    const size_t bytes = (size_t)cols * oct_dtype_bytes(dtype);
    const int32_t *source = routed->source_S + row;
    const int64_t behind = oct_tensor_rows(&routed->x) * routed->top_k - row;
    for (int64_t r = 0; r < rows; r++) {
        if (r + AHEAD_ROWS < behind) {
            const int64_t token = source[r + AHEAD_ROWS] / routed->top_k;
            prefetch(oct_at(dtype, routed->x.data, token * x_cols + col), bytes);
        }
        const int64_t token = source[r] / routed->top_k;
        const void *x = oct_at(dtype, routed->x.data, token * x_cols + col);
        void *y = oct_at_mut(dtype, tile, r * ld);
        if (routed->weights_TK)
            routed->kernels->scale(dtype, cols, routed->weights_TK[source[r]], x, y);
        else
            memcpy(y, x, bytes);
    }
}

oct_lazy oct_route_rows(const oct_routed *routed)
{
    return (oct_lazy){.dtype = routed->x.dtype,
                      .rows = oct_tensor_rows(&routed->x) * routed->top_k,
                      .cols = oct_tensor_cols(&routed->x),
                      .make = make_rows,
                      .arg = routed,
                      .cheap = true};
}

static void sum_tokens(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const route_job *job = arg;
    for (int64_t t = first; t < last; t++) {
        const int64_t at = t * job->cols, slot = t * job->top_k;
        job->kernels->sum_rows(job->dtype, job->cols, job->top_k, job->x, job->cols,
                               job->row_TK + slot, job->weights_TK ? job->weights_TK + slot : NULL,
                               job->addend ? oct_at(job->dtype, job->addend, at) : NULL,
                               oct_at_mut(job->dtype, job->y, at));
    }
}

oct_status oct_route_combine(const oct_exec *exec, const oct_tensor *x_SH, const int32_t *row_TK,
                             const float *weights_TK, int64_t top_k, const oct_tensor *shared,
                             const oct_tensor *y, oct_err *err)
{
    const char *what = "cannot combine the experts' rows";
    const int64_t rows = oct_tensor_rows(y), cols = oct_tensor_cols(y);
    OCT_TRY(oct_check_matrix(what, "y", y, y->dtype, rows, cols, err));
    OCT_TRY(oct_check_matrix(what, "x", x_SH, y->dtype, rows * top_k, cols, err));
    if (shared)
        OCT_TRY(oct_check_matrix(what, "shared", shared, y->dtype, rows, cols, err));
    route_job job = {.kernels = &exec->kernels->elementwise,
                     .dtype = y->dtype,
                     .top_k = top_k,
                     .cols = cols,
                     .x = x_SH->data,
                     .y = y->data,
                     .row_TK = row_TK,
                     .weights_TK = weights_TK,
                     .addend = shared ? shared->data : NULL};
    oct_for_ranges(exec, rows, cols * top_k, sum_tokens, &job);
    return OCT_OK;
}

static void combine_backward_tokens(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const route_job *job = arg;
    for (int64_t t = first; t < last; t++) {
        const void *dy = oct_at(job->dtype, job->dy, t * job->cols);
        for (int64_t slot = t * job->top_k; slot < (t + 1) * job->top_k; slot++)
            job->dweights_TK[slot] =
                job->kernels->dot(job->dtype, job->cols,
                                  oct_at(job->dtype, job->x, job->row_TK[slot] * job->cols), dy);
    }
}

oct_status oct_route_combine_backward(const oct_exec *exec, const oct_tensor *dy,
                                      const oct_tensor *x_SH, const int32_t *row_TK, int64_t top_k,
                                      float *dweights_TK, oct_err *err)
{
    const char *what = "cannot combine the experts' rows backward";
    const int64_t rows = oct_tensor_rows(dy), cols = oct_tensor_cols(dy);
    OCT_TRY(oct_check_matrix(what, "dy", dy, dy->dtype, rows, cols, err));
    OCT_TRY(oct_check_matrix(what, "x", x_SH, dy->dtype, rows * top_k, cols, err));
    route_job job = {.kernels = &exec->kernels->elementwise,
                     .dtype = dy->dtype,
                     .top_k = top_k,
                     .cols = cols,
                     .x = x_SH->data,
                     .row_TK = row_TK,
                     .dy = dy->data,
                     .dweights_TK = dweights_TK};
    oct_for_ranges(exec, rows, cols * top_k, combine_backward_tokens, &job);
    return OCT_OK;
}

oct_status oct_route_gather_backward(const oct_exec *exec, const oct_tensor *dx_SH,
                                     const int32_t *row_TK, int64_t top_k, const oct_tensor *dx,
                                     oct_err *err)
{
    const char *what = "cannot sum the gradient of gathered rows";
    const int64_t rows = oct_tensor_rows(dx), cols = oct_tensor_cols(dx);
    OCT_TRY(oct_check_matrix(what, "dx", dx, dx->dtype, rows, cols, err));
    OCT_TRY(
        oct_check_matrix(what, "the gathered gradient", dx_SH, dx->dtype, rows * top_k, cols, err));
    route_job job = {.kernels = &exec->kernels->elementwise,
                     .dtype = dx->dtype,
                     .top_k = top_k,
                     .cols = cols,
                     .x = dx_SH->data,
                     .y = dx->data,
                     .row_TK = row_TK};
    oct_for_ranges(exec, rows, cols * top_k, sum_tokens, &job);
    return OCT_OK;
}
