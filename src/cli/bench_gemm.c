/* octet bench gemm: the products alone, y = x W^T, weights packed beforehand for the 8-bit formats
 * as training does once per step. The limit is the inner loop alone, on panels that stay in the
 * first cache, on every thread. */
#include <stdio.h>

#include "cli/bench_data.h"
#include "cli/bench_harness.h"
#include "cli/bench_limits.h"
#include "cli/bench_products.h"
#include "low_precision/config.h"
#include "low_precision/matmul.h"
#include "low_precision/weight.h"

enum { FORMATS = 3, FMA_LIMIT = FORMATS, INTEGER_LIMIT, FIRST_PEER };

typedef struct product {
    oct_bench *bench;
    const oct_low_precision_format *format; /* NULL: BF16 */
    oct_run run;
    oct_tensor x, w, y;
    oct_operand left, right;
    oct_weight_storage *weight;
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

static oct_status check_bf16(void *arg, int64_t *checked, oct_err *err)
{
    product *p = arg;
    const oct_fma_source x = oct_bench_plain(&p->x, true), w = oct_bench_plain(&p->w, true);
    oct_bench_poison(&p->y);
    OCT_TRY(run_bf16(p, err));
    return oct_bench_check_product(&x, &w, &p->y, "the product", checked, err);
}

static oct_status check_8bit(void *arg, int64_t *checked, oct_err *err)
{
    product *p = arg;
    const oct_operand_slice x_rows = {.rows = p->x.shape[0]}, w_rows = {.rows = p->w.shape[0]};
    const oct_quantized_matrix left = p->format->matrix(&p->left, &x_rows);
    const oct_quantized_matrix right = p->format->matrix(&p->right, &w_rows);
    const oct_fma_source x = oct_bench_codes(&left), w = oct_bench_codes(&right);
    OCT_TRY(oct_bench_check_codes(&left, &p->x, "the input", checked, err));
    OCT_TRY(oct_bench_check_codes(&right, &p->w, "the weight", checked, err));
    oct_bench_poison(&p->y);
    OCT_TRY(run_8bit(p, err));
    return oct_bench_check_product(&x, &w, &p->y, "the product", checked, err);
}

/* Quantizes both operands; packs the weight. */
static oct_status prepare(product *p, oct_param *param, oct_err *err)
{
    oct_arena *memory = &p->bench->memory;
    const oct_exec *exec = &p->bench->exec;
    const oct_low_precision_policy policy = oct_low_precision_policy_of(p->format->recipe);
    OCT_TRY(oct_weight_create(memory, &policy, param, OCT_DTYPE_BF16, &p->weight, err));
    OCT_TRY(oct_weight_refresh(exec, NULL, p->weight, param->value.data, NULL, err));
    const oct_quantize_want row = {.operand = &p->left, .arena = memory};
    const oct_lazy x = oct_lazy_of(&p->x);
    OCT_TRY(p->format->quantize(exec, oct_recipe_quantizer(p->format->recipe, OCT_ROLE_INPUT_FWD),
                                &x, NULL, &row, &(oct_quantize_want){0}, err));
    const oct_orientation orientation = oct_weight_fprop_orientation(p->weight);
    OCT_TRY(oct_weight_pack(exec, p->weight, orientation, err));
    return oct_weight_select(p->weight, orientation, &p->right, err);
}

static oct_status open_product(oct_bench *bench, int f, const product *shared, oct_param *param,
                               product *p, oct_bench_variant *variant, oct_err *err)
{
    const double work =
        2.0 * (double)shared->x.shape[0] * (double)shared->x.shape[1] * (double)shared->y.shape[1];
    *p = *shared;
    p->bench = bench;
    p->run = (oct_run){.exec = &bench->exec, .step = &bench->step};
    p->format = f == 0 ? NULL : oct_low_precision_formats[f - 1];
    *variant = (oct_bench_variant){
        .format = p->format ? p->format->name : "bf16",
        .work = work,
        .floor = {{.limit = 1 + (p->format ? INTEGER_LIMIT : FMA_LIMIT), .work = work}},
        .run = p->format ? run_8bit : run_bf16,
        .check = p->format ? check_8bit : check_bf16,
        .arg = p,
    };
    return p->format ? prepare(p, param, err) : OCT_OK;
}

static oct_status measure_case(oct_bench *bench, const char *name, const int64_t shape[3],
                               product *products, oct_bench_peer_run *peers, oct_err *err)
{
    const int64_t t = shape[0], i = shape[1], o = shape[2];
    oct_bench_variant variants[OCT_BENCH_MAX_VARIANTS];
    oct_bench_limit limits[OCT_BENCH_LIMIT_COUNT];
    product shared = {0};
    oct_param param = {.fqn = (char[]){"bench.weight"}, .ndim = 2, .shape = {o, i}, .rows = o};
    OCT_TRY(oct_bench_fill(&bench->memory, OCT_BENCH_GAUSSIAN, "x", t, i, 1.0f, &shared.x, err));
    OCT_TRY(oct_bench_fill(&bench->memory, OCT_BENCH_GAUSSIAN, "w", o, i, 0.02f, &shared.w, err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_BF16, t, o, &shared.y, err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_F32, o, i, &param.value, err));
    OCT_TRY(oct_convert(&bench->exec, &shared.w, &param.value, err));
    OCT_TRY(oct_bench_limits_open(bench, limits, err));
    for (int f = 0; f < FORMATS; f++)
        OCT_TRY(open_product(bench, f, &shared, &param, &products[f], &variants[f], err));
    variants[FMA_LIMIT] = oct_bench_limit_variant(&limits[OCT_BENCH_LIMIT_FMA]);
    variants[INTEGER_LIMIT] = oct_bench_limit_variant(&limits[OCT_BENCH_LIMIT_INTEGER]);
    const oct_bench_product fprop = {
        .layout = OCT_LAYOUT_NT, .a = &shared.x, .b = &shared.w, .b_is_weight = true};
    int count = FIRST_PEER;
    OCT_TRY(oct_bench_peers_open(bench, &fprop, 1, variants[0].work, (oct_bench_floor){0}, peers,
                                 variants, &count, err));
    return oct_bench_case(bench, "gemm", name, variants, count, 1e9, "GFLOP/s", err);
}

static oct_status one_case(oct_bench *bench, const int64_t shape[3], oct_err *err)
{
    char name[64];
    const int64_t dims[3] = {oct_bench_dim(bench, shape[0]), oct_bench_dim(bench, shape[1]),
                             oct_bench_dim(bench, shape[2])};
    (void)snprintf(name, sizeof name, "%lldx%lldx%lld", (long long)dims[0], (long long)dims[1],
                   (long long)dims[2]);
    if (!oct_bench_wanted(bench, name))
        return OCT_OK;
    const oct_arena_mark mark = oct_arena_save(&bench->memory);
    product products[FORMATS] = {{0}};
    oct_bench_peer_run peers[OCT_BENCH_MAX_PEERS] = {{0}};
    const oct_status status = measure_case(bench, name, dims, products, peers, err);
    oct_bench_peers_close(peers);
    for (int f = 0; f < FORMATS; f++)
        if (products[f].weight)
            oct_weight_release(products[f].weight);
    oct_arena_rewind(&bench->memory, mark);
    return status;
}

oct_status oct_bench_gemm(oct_bench *bench, oct_err *err)
{
    /* The 16B's: q and o, kv_a, kv_b, dense gate and up, dense down, experts. */
    static const int64_t shapes[][3] = {
        {512, 2048, 2048},  {1024, 2048, 2048}, {2048, 2048, 2048}, {4096, 2048, 2048},
        {2048, 2048, 3136}, {2048, 3072, 3072}, {512, 2048, 10944}, {512, 10944, 2048},
        {192, 2048, 2816},  {192, 1408, 2048},
    };
    const int64_t *one = bench->options->shape;
    if (one[0])
        return one_case(bench, one, err);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        OCT_TRY(one_case(bench, shapes[s], err));
    return OCT_OK;
}
