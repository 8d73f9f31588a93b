/* octet bench layer: one linear layer end to end, fprop + dgrad + wgrad, with quantization and
 * packing of everything but the weight. The limit is the inner loop for the products plus a copy of
 * the bytes that a layer cannot but read and write. */
#include <stdio.h>

#include "cli/bench_data.h"
#include "cli/bench_harness.h"
#include "cli/bench_limits.h"
#include "cli/bench_products.h"
#include "low_precision/config.h"
#include "low_precision/functional/linear.h"

enum { FORMATS = 3, FMA_LIMIT = FORMATS, INTEGER_LIMIT, COPY_LIMIT, FIRST_PEER };

typedef struct layer_case {
    int64_t tokens, in, out;
    oct_bench_data x, dy;
    const char *data; /* in the name of the case */
} layer_case;

typedef struct layer {
    oct_bench *bench;
    const oct_low_precision_format *format; /* NULL: BF16 */
    oct_run run;
    oct_weight_storage *weight;
    oct_tensor x, w, dy, y, dx, dw;
} layer;

static oct_gemm_out store(const oct_tensor *tensor)
{
    return (oct_gemm_out){.data = tensor->data,
                          .ld = tensor->shape[1],
                          .dtype = tensor->dtype,
                          .store = OCT_GEMM_STORE};
}

static oct_status run_bf16(void *arg, oct_err *err)
{
    layer *l = arg;
    const oct_exec *exec = &l->bench->exec;
    const oct_matrix x = oct_matrix_of(&l->x), w = oct_matrix_of(&l->w), dy = oct_matrix_of(&l->dy);
    const oct_gemm_out y = store(&l->y), dx = store(&l->dx), dw = store(&l->dw);
    OCT_TRY(oct_gemm(exec, &x, &w, OCT_LAYOUT_NT, &y, err));
    OCT_TRY(oct_gemm(exec, &dy, &w, OCT_LAYOUT_NN, &dx, err));
    return oct_gemm(exec, &dy, &x, OCT_LAYOUT_TN, &dw, err);
}

static oct_status run_8bit(void *arg, oct_err *err)
{
    layer *l = arg;
    oct_operand saved;
    const oct_gemm_out dw = store(&l->dw);
    oct_arena_reset(&l->bench->step);
    OCT_TRY(oct_low_precision_linear_forward(&l->run, "bench", l->weight, NULL, &l->x, &l->y,
                                             &saved, err));
    return oct_low_precision_linear_backward(&l->run, "bench", l->weight, &saved, &l->dy, &l->dx,
                                             &dw, err);
}

/* --- checks ---------------------------------------------------------------------------------- */

/* Both sides of the three products. */
typedef struct sides {
    oct_fma_source x_row, x_col, w_row, w_col, dy_row, dy_col;
} sides;

static oct_status check_products(const layer *l, const sides *s, int64_t *checked, oct_err *err)
{
    OCT_TRY(oct_bench_check_product(&s->x_row, &s->w_row, &l->y, "fprop", checked, err));
    OCT_TRY(oct_bench_check_product(&s->dy_row, &s->w_col, &l->dx, "dgrad", checked, err));
    return oct_bench_check_product(&s->dy_col, &s->x_col, &l->dw, "wgrad", checked, err);
}

static void poison(const layer *l)
{
    oct_bench_poison(&l->y);
    oct_bench_poison(&l->dx);
    oct_bench_poison(&l->dw);
}

static oct_status check_bf16(void *arg, int64_t *checked, oct_err *err)
{
    layer *l = arg;
    poison(l);
    OCT_TRY(run_bf16(l, err));
    const sides s = {
        .x_row = oct_bench_plain(&l->x, true),
        .x_col = oct_bench_plain(&l->x, false),
        .w_row = oct_bench_plain(&l->w, true),
        .w_col = oct_bench_plain(&l->w, false),
        .dy_row = oct_bench_plain(&l->dy, true),
        .dy_col = oct_bench_plain(&l->dy, false),
    };
    return check_products(l, &s, checked, err);
}

/* Quantizes x as the layer does, in both orientations, and checks the codes. */
static oct_status quantize(const layer *l, const oct_tensor *x, oct_role role, const char *what,
                           oct_quantized_matrix codes[2], int64_t *checked, oct_err *err)
{
    oct_operand row_operand, col_operand;
    const oct_quantize_want row = {.operand = &row_operand, .arena = &l->bench->memory};
    const oct_quantize_want col = {.operand = &col_operand, .arena = &l->bench->memory};
    const oct_operand_slice all = {.rows = x->shape[0]};
    const oct_lazy source = oct_lazy_of(x);
    OCT_TRY(l->format->quantize(&l->bench->exec, oct_recipe_quantizer(l->format->recipe, role),
                                &source, NULL, &row, &col, err));
    codes[0] = l->format->matrix(&row_operand, &all);
    codes[1] = l->format->matrix(&col_operand, &all);
    for (int o = 0; o < 2; o++)
        OCT_TRY(oct_bench_check_codes(&codes[o], x, what, checked, err));
    return OCT_OK;
}

static oct_status weight_codes(const layer *l, oct_orientation orientation,
                               oct_quantized_matrix *codes, int64_t *checked, oct_err *err)
{
    oct_operand operand;
    const oct_operand_slice all = {.rows = l->w.shape[0]};
    OCT_TRY(oct_weight_select(l->weight, orientation, &operand, err));
    *codes = l->format->matrix(&operand, &all);
    return oct_bench_check_codes(codes, &l->w, "the weight", checked, err);
}

static oct_status check_8bit(void *arg, int64_t *checked, oct_err *err)
{
    layer *l = arg;
    const oct_arena_mark mark = oct_arena_save(&l->bench->memory);
    oct_quantized_matrix x[2], dy[2], w[2];
    OCT_TRY(quantize(l, &l->x, OCT_ROLE_INPUT_FWD, "the input", x, checked, err));
    OCT_TRY(quantize(l, &l->dy, OCT_ROLE_GRAD_OUTPUT, "the gradient", dy, checked, err));
    OCT_TRY(weight_codes(l, oct_weight_fprop_orientation(l->weight), &w[0], checked, err));
    OCT_TRY(weight_codes(l, oct_weight_dgrad_orientation(l->weight), &w[1], checked, err));
    poison(l);
    OCT_TRY(run_8bit(l, err));
    const sides s = {
        .x_row = oct_bench_codes(&x[0]),
        .x_col = oct_bench_codes(&x[1]),
        .w_row = oct_bench_codes(&w[0]),
        .w_col = oct_bench_codes(&w[1]),
        .dy_row = oct_bench_codes(&dy[0]),
        .dy_col = oct_bench_codes(&dy[1]),
    };
    OCT_TRY(check_products(l, &s, checked, err));
    oct_arena_rewind(&l->bench->memory, mark);
    return OCT_OK;
}

/* --- cases ----------------------------------------------------------------------------------- */

/* Bytes that must move: operands read once, 8-bit forms written once for each orientation that has
 * bytes of its own (a scale of the whole reads its input twice), results written. */
static double floor_bytes(const layer *l)
{
    const double x = (double)oct_tensor_numel(&l->x), dy = (double)oct_tensor_numel(&l->dy);
    const double w = (double)oct_tensor_numel(&l->w);
    const double results = 2.0 * dy + 2.0 * x + 4.0 * w;
    if (!l->format)
        return 2.0 * (x + dy + w) + results;
    const double reads = l->format->scale_dtype == OCT_DTYPE_F32 ? 2.0 : 1.0;
    const double forms = l->format->orientations_share ? 1.0 : 2.0 * (1.0 + 1.0 / 32.0);
    return (2.0 * reads + forms) * (x + dy) + forms * w + results;
}

static oct_status open_layer(oct_bench *bench, int f, const layer *shared, oct_param *param,
                             layer *l, oct_bench_variant *variant, oct_err *err)
{
    const int64_t t = shared->x.shape[0], i = shared->x.shape[1], o = shared->dy.shape[1];
    const double work = 6.0 * (double)t * (double)i * (double)o;
    *l = *shared;
    l->bench = bench;
    l->run = (oct_run){.exec = &bench->exec,
                       .step = &bench->step,
                       .act_dtype = OCT_DTYPE_BF16,
                       .reduce_dtype = OCT_DTYPE_F32,
                       .training = true};
    l->format = f == 0 ? NULL : oct_low_precision_formats[f - 1];
    *variant = (oct_bench_variant){
        .format = l->format ? l->format->name : "bf16",
        .work = work,
        .floor = {{.limit = 1 + (l->format ? INTEGER_LIMIT : FMA_LIMIT), .work = work},
                  {.limit = 1 + COPY_LIMIT, .work = floor_bytes(l)}},
        .run = l->format ? run_8bit : run_bf16,
        .check = l->format ? check_8bit : check_bf16,
        .arg = l,
    };
    if (!l->format)
        return OCT_OK;
    const oct_low_precision_policy policy = oct_low_precision_policy_of(l->format->recipe);
    OCT_TRY(oct_weight_create(&bench->memory, &policy, param, OCT_DTYPE_BF16, &l->weight, err));
    return oct_weight_refresh(&bench->exec, NULL, l->weight, param->value.data, NULL, err);
}

static oct_status fill(oct_bench *bench, const layer_case *c, layer *l, oct_err *err)
{
    oct_arena *memory = &bench->memory;
    const int64_t t = c->tokens, i = c->in, o = c->out;
    const float gradient = c->dy == OCT_BENCH_ADVERSARIAL ? 1.0f : 1e-4f;
    OCT_TRY(oct_bench_fill(memory, c->x, "x", t, i, 1.0f, &l->x, err));
    OCT_TRY(oct_bench_fill(memory, OCT_BENCH_GAUSSIAN, "w", o, i, 0.02f, &l->w, err));
    OCT_TRY(oct_bench_fill(memory, c->dy, "dy", t, o, gradient, &l->dy, err));
    OCT_TRY(oct_tensor_new_2d(memory, OCT_DTYPE_BF16, t, o, &l->y, err));
    OCT_TRY(oct_tensor_new_2d(memory, OCT_DTYPE_BF16, t, i, &l->dx, err));
    return oct_tensor_new_2d(memory, OCT_DTYPE_F32, o, i, &l->dw, err);
}

static oct_status measure_case(oct_bench *bench, const char *name, const layer_case *c,
                               layer *layers, oct_bench_peer_run *peers, oct_err *err)
{
    oct_bench_variant variants[OCT_BENCH_MAX_VARIANTS];
    oct_bench_limit limits[OCT_BENCH_LIMIT_COUNT];
    layer shared = {0};
    oct_param param = {
        .fqn = (char[]){"bench.weight"}, .ndim = 2, .shape = {c->out, c->in}, .rows = c->out};
    OCT_TRY(fill(bench, c, &shared, err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_F32, c->out, c->in, &param.value, err));
    OCT_TRY(oct_convert(&bench->exec, &shared.w, &param.value, err));
    OCT_TRY(oct_bench_limits_open(bench, limits, err));
    for (int f = 0; f < FORMATS; f++)
        OCT_TRY(open_layer(bench, f, &shared, &param, &layers[f], &variants[f], err));
    variants[FMA_LIMIT] = oct_bench_limit_variant(&limits[OCT_BENCH_LIMIT_FMA]);
    variants[INTEGER_LIMIT] = oct_bench_limit_variant(&limits[OCT_BENCH_LIMIT_INTEGER]);
    variants[COPY_LIMIT] = oct_bench_limit_variant(&limits[OCT_BENCH_LIMIT_COPY]);
    const oct_bench_product products[] = {
        {.layout = OCT_LAYOUT_NT, .a = &shared.x, .b = &shared.w, .b_is_weight = true},
        {.layout = OCT_LAYOUT_NN, .a = &shared.dy, .b = &shared.w, .b_is_weight = true},
        {.layout = OCT_LAYOUT_TN, .a = &shared.dy, .b = &shared.x},
    };
    int count = FIRST_PEER;
    OCT_TRY(oct_bench_peers_open(bench, products, 3, variants[0].work, (oct_bench_floor){0}, peers,
                                 variants, &count, err));
    return oct_bench_case(bench, "layer", name, variants, count, 1e9, "GFLOP/s", err);
}

static oct_status one_case(oct_bench *bench, const layer_case *full, oct_err *err)
{
    char name[64];
    layer_case c = *full;
    c.tokens = oct_bench_dim(bench, c.tokens);
    c.in = oct_bench_dim(bench, c.in);
    c.out = oct_bench_dim(bench, c.out);
    (void)snprintf(name, sizeof name, "%lldx%lldx%lld%s%s", (long long)c.tokens, (long long)c.in,
                   (long long)c.out, c.data ? " " : "", c.data ? c.data : "");
    if (!oct_bench_wanted(bench, name))
        return OCT_OK;
    const oct_arena_mark mark = oct_arena_save(&bench->memory);
    layer layers[FORMATS] = {{0}};
    oct_bench_peer_run peers[OCT_BENCH_MAX_PEERS] = {{0}};
    const oct_status status = measure_case(bench, name, &c, layers, peers, err);
    oct_bench_peers_close(peers);
    for (int f = 0; f < FORMATS; f++)
        if (layers[f].weight)
            oct_weight_release(layers[f].weight);
    oct_arena_rewind(&bench->memory, mark);
    return status;
}

oct_status oct_bench_layer(oct_bench *bench, oct_err *err)
{
    static const layer_case cases[] = {
        {2048, 2048, 2048, OCT_BENCH_GAUSSIAN, OCT_BENCH_GAUSSIAN, NULL},
        {2048, 2048, 2048, OCT_BENCH_GAUSSIAN, OCT_BENCH_LOG_NORMAL_1, "log-normal 1"},
        {2048, 2048, 2048, OCT_BENCH_GAUSSIAN, OCT_BENCH_LOG_NORMAL_2, "log-normal 2"},
        {512, 2048, 2048, OCT_BENCH_GAUSSIAN, OCT_BENCH_GAUSSIAN, NULL},
        {512, 2048, 2048, OCT_BENCH_ADVERSARIAL, OCT_BENCH_ADVERSARIAL, "adversarial"},
        {2048, 2048, 2048, OCT_BENCH_ADVERSARIAL, OCT_BENCH_ADVERSARIAL, "adversarial"},
        {64, 2048, 2816, OCT_BENCH_GAUSSIAN, OCT_BENCH_GAUSSIAN, "expert"},
        {192, 2048, 2816, OCT_BENCH_GAUSSIAN, OCT_BENCH_GAUSSIAN, "expert"},
        {384, 2048, 2816, OCT_BENCH_GAUSSIAN, OCT_BENCH_GAUSSIAN, "expert"},
        {64, 1408, 2048, OCT_BENCH_SWIGLU, OCT_BENCH_GAUSSIAN, "expert swiglu"},
        {192, 1408, 2048, OCT_BENCH_SWIGLU, OCT_BENCH_GAUSSIAN, "expert swiglu"},
        {384, 1408, 2048, OCT_BENCH_SWIGLU, OCT_BENCH_GAUSSIAN, "expert swiglu"},
        {2048, 256, 704, OCT_BENCH_GAUSSIAN, OCT_BENCH_GAUSSIAN, NULL},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        OCT_TRY(one_case(bench, &cases[c], err));
    return OCT_OK;
}
