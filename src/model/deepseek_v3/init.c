/* Initial weights. Four neighbouring elements share one block of four random words: two pairs of
 * uniforms, each turned into two normals (Box & Muller 1958). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/size.h"
#include "base/threads.h"
#include "model/deepseek_v3/layout.h"
#include "numeric/fmath.h"

enum { WORDS = 4, CHUNK = 1 << 16 };

static void normal_block(oct_rng stream, uint64_t block, double std, float out[WORDS])
{
    static const double two_pi = 0x1.921fb54442d18p+2;
    uint32_t words[WORDS];
    oct_rng_block(stream, block, words);
    for (int pair = 0; pair < WORDS; pair += 2) {
        /* Half a step off the grid keeps the logarithm finite: |x| < 6.8 std. */
        const double u = ((double)words[pair] + 0.5) * 0x1p-32;
        const double angle = (double)words[pair + 1] * 0x1p-32 * two_pi;
        const double radius = sqrt(-2.0 * oct_log(u)) * std;
        out[pair] = (float)(radius * oct_cos(angle));
        out[pair + 1] = (float)(radius * oct_sin(angle));
    }
}

static void fill_normal(oct_rng stream, double std, int64_t first, int64_t count, float *out)
{
    float block[WORDS];
    for (int64_t i = 0; i < count;) {
        const int64_t element = first + i;
        const int64_t skip = element % WORDS;
        const int64_t n = oct_min_i64(WORDS - skip, count - i);
        normal_block(stream, (uint64_t)(element / WORDS), std, block);
        memcpy(out + i, block + skip, (size_t)n * sizeof *out);
        i += n;
    }
}

static bool ends_with(const char *text, const char *tail)
{
    const size_t length = strlen(text), end = strlen(tail);
    return length >= end && !strcmp(text + length - end, tail);
}

static bool is_norm(const char *fqn)
{
    return ends_with(fqn, "norm.weight");
}

void oct_dsv3_init_range(const oct_dsv3 *model, const oct_param *param, uint64_t seed,
                         int64_t first, int64_t count, float *out)
{
    if (param->ndim == 1) {
        const float value = is_norm(param->fqn) ? 1.0f : 0.0f; /* a bias otherwise */
        for (int64_t i = 0; i < count; i++)
            out[i] = value;
        return;
    }
    fill_normal(oct_rng_stream(seed, param->fqn), model->hf.initializer_range, first, count, out);
    if (param != model->embedding || model->hf.pad_token_id < 0)
        return;
    const int64_t width = oct_param_cols(param), pad = model->hf.pad_token_id * width;
    for (int64_t i = oct_max_i64(first, pad); i < oct_min_i64(first + count, pad + width); i++)
        out[i - first] = 0.0f;
}

typedef struct fill_job {
    const oct_dsv3 *model;
    const oct_param *param;
    uint64_t seed;
} fill_job;

static void fill_chunk(void *arg, int64_t chunk, int thread)
{
    (void)thread;
    const fill_job *job = arg;
    const int64_t first = chunk * CHUNK;
    const int64_t count = oct_min_i64(CHUNK, oct_param_numel(job->param) - first);
    oct_dsv3_init_range(job->model, job->param, job->seed, first, count, job->param->init + first);
}

static oct_status init_param(const oct_dsv3 *model, oct_param *param, uint64_t seed, int threads,
                             oct_err *err)
{
    const int64_t numel = oct_param_numel(param);
    free(param->init);
    param->init = malloc((size_t)numel * sizeof *param->init);
    if (!param->init)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot initialise '%s': %lld elements of 4 bytes wanted",
                        param->fqn, (long long)numel);
    fill_job job = {.model = model, .param = param, .seed = seed};
    oct_parallel_for(threads, oct_ceil_div(numel, CHUNK), fill_chunk, &job);
    return OCT_OK;
}

oct_status oct_dsv3_init(oct_dsv3 *model, uint64_t seed, int threads, oct_err *err)
{
    oct_module_tree *tree = model->tree;
    oct_status status = oct_module_materialise_buffers(tree, err);
    for (int64_t p = 0; p < tree->param_count && status == OCT_OK; p++)
        status = init_param(model, tree->params[p], seed, threads, err);
    for (int64_t p = 0; p < tree->param_count && status != OCT_OK; p++) {
        free(tree->params[p]->init);
        tree->params[p]->init = NULL;
    }
    return status;
}
