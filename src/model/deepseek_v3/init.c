/* Initial weights. Four neighbouring elements share one block of four random words: two pairs of
 * uniforms, each turned into two normals (Box & Muller 1958). The functions here are short ones in
 * FP64 without fma, exact to 2e-10 and the same bits everywhere: a model has billions of elements,
 * and fma is a library call where the instruction may be missing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/huge_pages.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/threads.h"
#include "model/deepseek_v3/layout.h"

enum { WORDS = 4, CHUNK = 1 << 16 };

/* ln((w + 0.5) 2^-32); the half step keeps it finite: |x| < 6.8 std. */
static double log_uniform(uint32_t w)
{
    const double u = (double)w + 0.5;
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    /* u = 2^e m, sqrt(1/2) <= m < sqrt(2); ln m = 2 atanh(s). */
    static const uint64_t root = 0x3fe6a09e667f3bcdu; /* sqrt(1/2) */
    bits -= root;
    const double e = (double)((int64_t)bits >> 52) - 32.0;
    bits = (bits & 0xfffffffffffffu) + root;
    double m;
    memcpy(&m, &bits, sizeof m);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    const double series =
        1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11)))));
    return e * 0x1.62e42fefa39efp-1 + 2.0 * s * series;
}

/* Cosine and sine of w 2^-32 turns. */
static void circle(uint32_t w, double *cosine, double *sine)
{
    const uint32_t quadrant = (w + 0x20000000u) >> 30;
    /* |x| <= pi/4 */
    const double x = (double)(int32_t)(w - (quadrant << 30)) * (0x1.921fb54442d18p+2 * 0x1p-32);
    const double z = x * x;
    const double c =
        1.0 + z * (-1.0 / 2 +
                   z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800)))));
    const double s =
        x * (1.0 +
             z * (-1.0 / 6 + z * (1.0 / 120 +
                                  z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800))))));
    /* Tables, not branches: the quadrant cannot be predicted. */
    static const double sign[2] = {1.0, -1.0};
    const double value[2] = {c, s};
    *cosine = value[quadrant & 1] * sign[(quadrant + 1) >> 1 & 1];
    *sine = value[~quadrant & 1] * sign[quadrant >> 1 & 1];
}

static void normal_block(oct_rng stream, uint64_t block, double std, float out[WORDS])
{
    uint32_t words[WORDS];
    oct_rng_block(stream, block, words);
    for (int pair = 0; pair < WORDS; pair += 2) {
        double cosine, sine;
        const double radius = sqrt(-2.0 * log_uniform(words[pair])) * std;
        circle(words[pair + 1], &cosine, &sine);
        out[pair] = (float)(radius * cosine);
        out[pair + 1] = (float)(radius * sine);
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
    const oct_param *param = job->param;
    const int64_t begin = chunk * CHUNK;
    const int64_t count = oct_min_i64(CHUNK, oct_param_own_numel(param) - begin);
    const int64_t first = param->row_begin * oct_param_row_numel(param) + begin;
    oct_dsv3_init_range(job->model, param, job->seed, first, count, param->init + begin);
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

static oct_status init_param(const oct_dsv3 *model, oct_param *param, uint64_t seed, int threads,
                             oct_err *err)
{
    const int64_t numel = oct_param_own_numel(param);
    free(param->init);
    param->init = new_floats(numel);
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
