/* Initial weights. */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/huge_pages.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/threads.h"
#include "model/deepseek_v3/layout.h"

/* Numbers that share a block of random words; elements of one work item. */
enum { WORDS = OCT_NORMAL_WORDS, CHUNK = 1 << 16 };

/* Elements first .. first+count-1 of a parameter; blocks at its ends may be cut. */
static void fill_normal(const oct_kernels *kernels, oct_rng stream, double std, int64_t first,
                        int64_t count, float *out)
{
    for (int64_t i = 0; i < count;) {
        const int64_t block = (first + i) / WORDS, skip = (first + i) % WORDS;
        const int64_t whole = skip == 0 ? (count - i) / WORDS : 0;
        if (whole > 0) {
            kernels->elementwise.normal(stream, (uint64_t)block, whole, std, out + i);
            i += whole * WORDS;
            continue;
        }
        float cut[WORDS];
        const int64_t n = oct_min_i64(WORDS - skip, count - i);
        kernels->elementwise.normal(stream, (uint64_t)block, 1, std, cut);
        memcpy(out + i, cut + skip, (size_t)n * sizeof *out);
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

void oct_dsv3_init_range(const oct_dsv3 *model, const oct_kernels *kernels, const oct_param *param,
                         uint64_t seed, int64_t first, int64_t count, float *out)
{
    if (param->ndim == 1) {
        const float value = is_norm(param->fqn) ? 1.0f : 0.0f; /* a bias otherwise */
        for (int64_t i = 0; i < count; i++)
            out[i] = value;
        return;
    }
    fill_normal(kernels, oct_rng_stream(seed, param->fqn), model->hf.initializer_range, first,
                count, out);
    if (param != model->embedding || model->hf.pad_token_id < 0)
        return;
    const int64_t width = oct_param_cols(param), pad = model->hf.pad_token_id * width;
    for (int64_t i = oct_max_i64(first, pad); i < oct_min_i64(first + count, pad + width); i++)
        out[i - first] = 0.0f;
}

typedef struct fill_job {
    const oct_dsv3 *model;
    const oct_kernels *kernels;
    const oct_param *param;
    uint64_t seed;
} fill_job;

static void fill_chunk(void *arg, int64_t chunk, int thread)
{
    (void)thread;
    const fill_job *job = arg;
    const oct_param *param = job->param;
    const int64_t begin = chunk * CHUNK;
    const int64_t count = oct_min_i64(CHUNK, oct_param_own_numel(param) - begin);
    const int64_t first = param->row_begin * oct_param_row_numel(param) + begin;
    oct_dsv3_init_range(job->model, job->kernels, param, job->seed, first, count,
                        param->init + begin);
}

/* A block of its own, on cache lines, also for no rows at all. */
static float *new_floats(int64_t count)
{
    enum { LINE_BYTES = 64 };
    size_t bytes = 0;
    if (!oct_size_mul((size_t)count, sizeof(float), &bytes) ||
        !oct_size_add(bytes, LINE_BYTES, &bytes) || oct_fault("init.memory"))
        return NULL;
    bytes = bytes / LINE_BYTES * LINE_BYTES;
    void *memory = aligned_alloc(LINE_BYTES, bytes);
    if (memory)
        oct_huge_pages_advise(memory, bytes);
    return memory;
}

static oct_status init_param(const oct_dsv3 *model, const oct_exec *exec, oct_param *param,
                             uint64_t seed, oct_err *err)
{
    const int64_t numel = oct_param_own_numel(param);
    free(param->init);
    param->init = new_floats(numel);
    if (!param->init)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot initialise '%s': %lld elements of 4 bytes wanted",
                        param->fqn, (long long)numel);
    fill_job job = {.model = model, .kernels = exec->kernels, .param = param, .seed = seed};
    oct_parallel_for(exec->threads, oct_ceil_div(numel, CHUNK), fill_chunk, &job);
    return OCT_OK;
}

oct_status oct_dsv3_init(oct_dsv3 *model, const oct_exec *exec, uint64_t seed, oct_err *err)
{
    oct_module_tree *tree = model->tree;
    oct_status status = oct_module_materialise_buffers(tree, err);
    for (int64_t p = 0; p < tree->param_count && status == OCT_OK; p++)
        status = init_param(model, exec, tree->params[p], seed, err);
    for (int64_t p = 0; p < tree->param_count && status != OCT_OK; p++) {
        free(tree->params[p]->init);
        tree->params[p]->init = NULL;
    }
    return status;
}
