/* octet bench gemm: the products alone, y = x W^T, weights packed beforehand for the 8-bit formats
 * as training does once per step. The limit is the inner loop alone, on panels that stay in the
 * first cache, on every thread. */
#include <stdio.h>
#include <string.h>

#include "base/threads.h"
#include "cli/bench_harness.h"
#include "low_precision/config.h"
#include "low_precision/matmul.h"
#include "low_precision/weight.h"

typedef struct product {
    oct_bench *bench;
    const oct_low_precision_format *format; /* NULL: BF16 */
    oct_run run;
    oct_tensor x, w, y;
    oct_operand left;
    oct_operand right;
} product;

static oct_gemm_out out_of(const product *p)
{
    return (oct_gemm_out){
        .data = p->y.data, .ld = p->y.shape[1], .dtype = OCT_DTYPE_BF16, .store = OCT_GEMM_STORE};
}

static oct_status run_bf16(void *arg, oct_err *err)
{
    product *p = arg;
    const oct_matrix x = oct_matrix_of(&p->x), w = oct_matrix_of(&p->w);
    const oct_gemm_out out = out_of(p);
    return oct_gemm(&p->bench->exec, &x, &w, OCT_LAYOUT_NT, &out, err);
}

static oct_status run_8bit(void *arg, oct_err *err)
{
    product *p = arg;
    const oct_matmul_label label = {.fqn = "bench", .phase = "fprop"};
    const oct_gemm_out out = out_of(p);
    return oct_low_precision_matmul(&p->run, &label, &p->left, &p->right, OCT_LAYOUT_NT, &out, err);
}

/* The inner loop of one route, over and over on one tile. */
typedef struct tile_loop {
    oct_bench *bench;
    bool integer;
} tile_loop;

enum { TILE_K = 2 * OCT_GEMM_GROUP, TILES = 1000 };
static const double tile_work = 2.0 * OCT_GEMM_MR * OCT_GEMM_NR * TILE_K * TILES;

static void run_tiles(void *arg, int64_t item, int thread)
{
    (void)item;
    (void)thread;
    const tile_loop *loop = arg;
    const oct_gemm_kernels *kernels = &loop->bench->kernels.gemm;
    _Alignas(64) float c[OCT_GEMM_MR * OCT_GEMM_NR] = {0};
    /* Zero operands: as fast as any, and sums that stay in range. */
    _Alignas(64) float a[TILE_K * OCT_GEMM_MR] = {0}, b[TILE_K * OCT_GEMM_NR] = {0};
    _Alignas(64) int16_t a16[TILE_K * OCT_GEMM_MR] = {0}, b16[TILE_K * OCT_GEMM_NR] = {0};
    for (int t = 0; t < TILES; t++) {
        if (loop->integer)
            kernels->integer_tile(TILE_K / OCT_GEMM_GROUP, a16, b16, a, b, c);
        else
            kernels->fma_tile(TILE_K, a, b, c);
    }
}

static oct_status run_limit(void *arg, oct_err *err)
{
    const tile_loop *loop = arg;
    (void)err;
    oct_parallel_for(loop->bench->exec.threads, loop->bench->exec.threads, run_tiles, arg);
    return OCT_OK;
}

/* Quantizes both operands; packs the weight. */
static oct_status prepare(product *p, oct_weight_storage *weight, oct_err *err)
{
    const oct_quantize_want row = {.operand = &p->left, .arena = &p->bench->memory};
    OCT_TRY(p->format->quantize(&p->bench->exec,
                                oct_recipe_quantizer(p->format->recipe, OCT_ROLE_INPUT_FWD), &p->x,
                                NULL, &row, &(oct_quantize_want){0}, err));
    const oct_orientation orientation = oct_weight_fprop_orientation(weight);
    OCT_TRY(oct_weight_pack(&p->bench->exec, weight, orientation, err));
    return oct_weight_select(weight, orientation, &p->right, err);
}

static oct_status one_case(oct_bench *bench, int64_t t, int64_t i, int64_t o, oct_err *err)
{
    const oct_arena_mark mark = oct_arena_save(&bench->memory);
    product products[3];
    tile_loop loops[2] = {{.bench = bench}, {.bench = bench, .integer = true}};
    enum { FMA_LIMIT = 3, INTEGER_LIMIT, VARIANTS };
    oct_bench_variant variants[VARIANTS];
    oct_tensor x, w, y, wide;
    OCT_TRY(oct_bench_gaussian(bench, "x", t, i, 1.0f, &x, err));
    OCT_TRY(oct_bench_gaussian(bench, "w", o, i, 0.02f, &w, err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_BF16, t, o, &y, err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_F32, o, i, &wide, err));
    OCT_TRY(oct_convert(&bench->exec, &w, &wide, err));
    oct_weight_storage *weights[3] = {0};
    oct_param param = {.fqn = (char[]){"bench.weight"}, .ndim = 2, .shape = {o, i}, .rows = o};
    int count = 0;
    oct_status status = OCT_OK;
    for (int f = -1; status == OCT_OK && (f < 0 || oct_low_precision_formats[f]) && count < 3;
         f++) {
        product *p = &products[count];
        *p = (product){.bench = bench,
                       .format = f < 0 ? NULL : oct_low_precision_formats[f],
                       .run = {.exec = &bench->exec, .step = &bench->step},
                       .x = x,
                       .w = w,
                       .y = y};
        variants[count] = (oct_bench_variant){
            .format = p->format ? p->format->name : "bf16",
            .work = 2.0 * (double)t * (double)i * (double)o,
            .limit = 1 + (p->format ? INTEGER_LIMIT : FMA_LIMIT),
            .limit_work = 2.0 * (double)t * (double)i * (double)o,
            .run = p->format ? run_8bit : run_bf16,
            .arg = p,
        };
        if (p->format) {
            const oct_low_precision_policy policy = oct_low_precision_policy_of(p->format->recipe);
            status = oct_weight_create(&bench->memory, &policy, &param, OCT_DTYPE_BF16,
                                       &weights[count], err);
            if (status == OCT_OK)
                status =
                    oct_weight_refresh(&bench->exec, NULL, weights[count], wide.data, NULL, err);
            if (status == OCT_OK)
                status = prepare(p, weights[count], err);
        }
        count++;
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%lldx%lldx%lld", (long long)t, (long long)i, (long long)o);
    for (int l = 0; l < 2; l++)
        variants[FMA_LIMIT + l] = (oct_bench_variant){.is_limit = true,
                                                      .work = tile_work * bench->exec.threads,
                                                      .run = run_limit,
                                                      .arg = &loops[l]};
    if (status == OCT_OK)
        status = oct_bench_case(bench, "gemm", name, variants, VARIANTS, 1e9, "GFLOP/s", err);
    for (int f = 0; f < count; f++)
        if (weights[f])
            oct_weight_release(weights[f]);
    oct_arena_rewind(&bench->memory, mark);
    return status;
}

oct_status oct_bench_gemm(oct_bench *bench, oct_err *err)
{
    static const int64_t shapes[][3] = {
        {512, 2048, 2048},  {2048, 2048, 2048}, {1024, 2048, 3136},
        {1024, 2048, 2816}, {192, 2048, 2816},  {192, 1408, 2048},
    };
    const int64_t *one = bench->options->shape;
    if (one[0])
        return one_case(bench, one[0], one[1], one[2], err);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        OCT_TRY(one_case(bench, shapes[s][0], shapes[s][1], shapes[s][2], err));
    return OCT_OK;
}
