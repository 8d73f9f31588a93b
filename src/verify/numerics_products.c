/* Dense linears, grouped linears and whole experts: T tokens (or S rows sorted by group), K in, N
 * out. Each case runs in BF16 and then in every 8-bit format, on the same tensors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/elementwise.h"
#include "low_precision/functional/grouped_linear.h"
#include "low_precision/modules/linear.h"
#include "low_precision/weight.h"
#include "model/deepseek_v3/deepseek_v3.h"
#include "model/deepseek_v3/low_precision_experts.h"
#include "module/experts.h"
#include "module/linear.h"
#include "numeric/bf16.h"
#include "numeric/fmath.h"
#include "verify/numerics.h"

enum { MAX_RESULTS = 4, MAX_GROUPS = 8 };

typedef enum distribution { GAUSSIAN, LOGNORMAL, OUTLIER, DISTRIBUTIONS } distribution;
static const char *const distribution_names[DISTRIBUTIONS] = {"gaussian", "lognormal", "outlier"};

/* What one pass made: BF16 activations, FP32 weight gradients. */
typedef struct results {
    int count;
    const char *names[MAX_RESULTS];
    oct_tensor tensors[MAX_RESULTS];
} results;

/* Where passes run. `inputs` lives for a case, `step` for a pass. */
typedef struct stand {
    oct_numerics *numerics;
    oct_kernels kernels;
    oct_arena scratch, step, inputs;
    oct_exec exec;
    oct_run run;
} stand;

/* One case. groups.count 0: dense. */
typedef struct product_case {
    const char *op;
    distribution data;
    char shape[64];
    int64_t rows, in, out; /* experts: out is the width F, in and the output are H */
    oct_groups groups;
    oct_tensor x, dy;      /* BF16 */
    oct_tensor masters[2]; /* FP32 */
    oct_status (*pass)(stand *s, const struct product_case *c,
                       const oct_low_precision_policy *policy, results *to, oct_err *err);
} product_case;

/* --- inputs ----------------------------------------------------------------------------------- */

/* Element i of a stream, standard normal (Box & Muller), without the last bits of any libm. */
static double normal(oct_rng stream, uint64_t i)
{
    const double u = oct_rng_uniform(stream, 2 * i), v = oct_rng_uniform(stream, 2 * i + 1);
    return sqrt(-2.0 * oct_log(1.0 - u)) * oct_cos(6.283185307179586 * v);
}

static double element(distribution data, oct_rng stream, int64_t i, int64_t cols)
{
    enum { OUTLIER_COLUMN = 61, OUTLIER_ELEMENT = 509 };
    const double x = normal(stream, (uint64_t)i);
    if (data == LOGNORMAL) /* magnitudes over many binades, either sign */
        return (oct_rng_u64(stream, ~(uint64_t)i) & 1 ? 1.0 : -1.0) * oct_exp(x);
    if (data == OUTLIER && i % cols % OUTLIER_COLUMN == 7)
        return 30.0 * x; /* a feature that is large in every token */
    if (data == OUTLIER && i % OUTLIER_ELEMENT == 11)
        return 50.0 * x;
    return x;
}

static oct_status fill(stand *s, const char *name, distribution data, double scale, int64_t rows,
                       int64_t cols, oct_tensor *out, oct_err *err)
{
    const oct_rng stream = oct_rng_stream(s->numerics->seed, name);
    OCT_TRY(oct_tensor_new_2d(&s->inputs, OCT_DTYPE_F32, rows, cols, out, err));
    float *values = out->data;
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = (float)(scale * element(data, stream, i, cols));
    return OCT_OK;
}

static oct_status narrow(const stand *s, oct_arena *arena, const oct_tensor *x, oct_tensor *out,
                         oct_err *err)
{
    OCT_TRY(
        oct_tensor_new_2d(arena, OCT_DTYPE_BF16, oct_tensor_rows(x), oct_tensor_cols(x), out, err));
    return oct_convert(&s->exec, x, out, err);
}

static oct_status fill_narrow(stand *s, const char *name, distribution data, double scale,
                              int64_t rows, int64_t cols, oct_tensor *out, oct_err *err)
{
    oct_tensor wide;
    OCT_TRY(fill(s, name, data, scale, rows, cols, &wide, err));
    return narrow(s, &s->inputs, &wide, out, err);
}

/* --- passes ----------------------------------------------------------------------------------- */

static oct_status new_result(oct_arena *arena, results *to, const char *name, oct_dtype dtype,
                             int64_t rows, int64_t cols, oct_tensor **out, oct_err *err)
{
    *out = &to->tensors[to->count];
    to->names[to->count++] = name;
    return oct_tensor_new_2d(arena, dtype, rows, cols, *out, err);
}

static const oct_module_type root_type = {.name = "torch.nn.Module"};

/* Gives the parameters of a module their compute form and a gradient. */
static oct_status attach(stand *s, const product_case *c, oct_module *module,
                         const oct_low_precision_policy *policy, const char *const *names,
                         results *to, oct_err *err)
{
    for (int p = 0; p < module->param_count; p++) {
        oct_param *param = module->params[p];
        oct_tensor *gradient = NULL;
        OCT_TRY(new_result(&s->inputs, to, names[p], OCT_DTYPE_F32, oct_param_rows(param),
                           oct_param_cols(param), &gradient, err));
        param->grad = gradient->data;
        if (!policy) {
            OCT_TRY(narrow(s, &s->inputs, &c->masters[p], &param->value, err));
            continue;
        }
        OCT_TRY(oct_weight_create(&s->inputs, policy, param, OCT_DTYPE_BF16, &param->storage, err));
        OCT_TRY(oct_weight_refresh(&s->exec, NULL, param->storage, c->masters[p].data, NULL, err));
    }
    return OCT_OK;
}

static void release(oct_module_tree *tree)
{
    for (int64_t p = 0; p < tree->param_count; p++) {
        if (tree->params[p]->storage)
            oct_weight_release(tree->params[p]->storage);
        tree->params[p]->storage = NULL;
        tree->params[p]->grad = NULL;
    }
    oct_module_tree_release(tree);
}

static oct_status dense_in(stand *s, const product_case *c, oct_module_tree *tree,
                           const oct_low_precision_policy *policy, results *to, oct_err *err)
{
    static const char *const names[] = {"dweight"};
    oct_module *root = NULL, *module = NULL;
    oct_linear_saved *saved = NULL;
    oct_tensor *y = NULL, *dx = NULL;
    OCT_TRY(oct_module_add(tree, NULL, "", &root_type, 1, &root, err));
    OCT_TRY(oct_linear_add(tree, root, "proj", c->in, c->out, false, &module, err));
    if (policy)
        OCT_TRY(oct_replace_low_precision_linear(tree, module, "proj", policy, &module, err));
    OCT_TRY(new_result(&s->inputs, to, "output", OCT_DTYPE_BF16, c->rows, c->out, &y, err));
    OCT_TRY(new_result(&s->inputs, to, "dinput", OCT_DTYPE_BF16, c->rows, c->in, &dx, err));
    OCT_TRY(attach(s, c, module, policy, names, to, err));
    OCT_TRY(oct_linear_forward(module, &s->run, &c->x, y, &saved, err));
    return oct_linear_backward(module, &s->run, saved, &c->dy, dx, err);
}

static oct_status experts_in(stand *s, const product_case *c, oct_module_tree *tree,
                             const oct_low_precision_policy *policy, results *to, oct_err *err)
{
    static const char *const names[] = {"dweight gate_up", "dweight down"};
    const int64_t count = c->groups.count;
    oct_module *root = NULL, *module = NULL;
    oct_experts_saved *saved = NULL;
    oct_param *param = NULL;
    oct_tensor *y = NULL, *dx = NULL;
    OCT_TRY(oct_module_add(tree, NULL, "", &root_type, 1, &root, err));
    OCT_TRY(oct_module_add(tree, root, "experts", &oct_dsv3_experts_type, 0, &module, err));
    OCT_TRY(oct_module_add_param(tree, module, "gate_up_proj", 3,
                                 (int64_t[]){count, 2 * c->out, c->in}, &param, err));
    OCT_TRY(oct_module_add_param(tree, module, "down_proj", 3, (int64_t[]){count, c->in, c->out},
                                 &param, err));
    if (policy)
        OCT_TRY(
            oct_replace_dsv3_low_precision_experts(tree, module, "experts", policy, &module, err));
    OCT_TRY(new_result(&s->inputs, to, "output", OCT_DTYPE_BF16, c->rows, c->in, &y, err));
    OCT_TRY(new_result(&s->inputs, to, "dinput", OCT_DTYPE_BF16, c->rows, c->in, &dx, err));
    OCT_TRY(attach(s, c, module, policy, names, to, err));
    const oct_lazy x = oct_lazy_of(&c->x), dy = oct_lazy_of(&c->dy);
    OCT_TRY(oct_experts_forward(module, &s->run, &x, &c->groups, y, &saved, err));
    return oct_experts_backward(module, &s->run, saved, &c->groups, &dy, dx, err);
}

static oct_status dense_pass(stand *s, const product_case *c,
                             const oct_low_precision_policy *policy, results *to, oct_err *err)
{
    oct_module_tree tree;
    oct_module_tree_init(&tree);
    const oct_status status = dense_in(s, c, &tree, policy, to, err);
    release(&tree);
    return status;
}

static oct_status experts_pass(stand *s, const product_case *c,
                               const oct_low_precision_policy *policy, results *to, oct_err *err)
{
    oct_module_tree tree;
    oct_module_tree_init(&tree);
    const oct_status status = experts_in(s, c, &tree, policy, to, err);
    release(&tree);
    return status;
}

static oct_gemm_out store(const oct_tensor *c)
{
    return (oct_gemm_out){
        .data = c->data, .ld = oct_tensor_cols(c), .dtype = c->dtype, .store = OCT_GEMM_STORE};
}

/* The three products of one grouped weight [G,N,K]: gate_up and down of experts call the same. */
static oct_status grouped_bf16(stand *s, const product_case *c, const oct_tensor *y,
                               const oct_tensor *dx, const oct_tensor *dw, oct_err *err)
{
    oct_tensor weight;
    OCT_TRY(narrow(s, &s->inputs, &c->masters[0], &weight, err));
    const oct_matrix x = oct_matrix_of(&c->x), w = oct_matrix_of(&weight);
    const oct_matrix dy = oct_matrix_of(&c->dy);
    const oct_gemm_out to_y = store(y), to_dx = store(dx), to_dw = store(dw);
    OCT_TRY(oct_gemm_grouped(&s->exec, &x, &w, &c->groups, OCT_LAYOUT_NT, &to_y, err));
    OCT_TRY(oct_gemm_grouped(&s->exec, &dy, &w, &c->groups, OCT_LAYOUT_NN, &to_dx, err));
    return oct_gemm_grouped(&s->exec, &dy, &x, &c->groups, OCT_LAYOUT_TN, &to_dw, err);
}

static oct_status grouped_low(stand *s, const product_case *c, oct_weight_storage *weight,
                              const oct_tensor *y, const oct_tensor *dx, const oct_tensor *dw,
                              oct_err *err)
{
    oct_operand saved;
    const oct_gemm_out to_dw = store(dw);
    const oct_lazy x = oct_lazy_of(&c->x), dy = oct_lazy_of(&c->dy);
    OCT_TRY(oct_weight_refresh(&s->exec, NULL, weight, c->masters[0].data, NULL, err));
    OCT_TRY(
        oct_low_precision_grouped_linear_forward(&s->run, weight, &x, &c->groups, y, &saved, err));
    return oct_low_precision_grouped_linear_backward(&s->run, weight, &saved, &c->groups, &dy, dx,
                                                     &to_dw, err);
}

static oct_status grouped_pass(stand *s, const product_case *c,
                               const oct_low_precision_policy *policy, results *to, oct_err *err)
{
    char fqn[] = "proj.weight";
    const int64_t count = c->groups.count;
    const oct_param param = {.fqn = fqn,
                             .ndim = 3,
                             .shape = {count, c->out, c->in},
                             .rows = count,
                             .requires_grad = true};
    oct_tensor *y = NULL, *dx = NULL, *dw = NULL;
    OCT_TRY(new_result(&s->inputs, to, "output", OCT_DTYPE_BF16, c->rows, c->out, &y, err));
    OCT_TRY(new_result(&s->inputs, to, "dinput", OCT_DTYPE_BF16, c->rows, c->in, &dx, err));
    OCT_TRY(new_result(&s->inputs, to, "dweight", OCT_DTYPE_F32, count * c->out, c->in, &dw, err));
    if (!policy)
        return grouped_bf16(s, c, y, dx, dw, err);
    oct_weight_storage *weight = NULL;
    OCT_TRY(oct_weight_create(&s->inputs, policy, &param, OCT_DTYPE_BF16, &weight, err));
    const oct_status status = grouped_low(s, c, weight, y, dx, dw, err);
    oct_weight_release(weight);
    return status;
}

/* --- cases ------------------------------------------------------------------------------------ */

static double value_at(const oct_tensor *t, int64_t i)
{
    return (double)(t->dtype == OCT_DTYPE_F32 ? ((const float *)t->data)[i]
                                              : oct_bf16_to_f32(((const uint16_t *)t->data)[i]));
}

static oct_status compare(stand *s, const product_case *c, const char *format,
                          const results *golden, const results *made, oct_err *err)
{
    for (int r = 0; r < golden->count; r++) {
        oct_error_sums sums = {0};
        const int64_t count = oct_tensor_numel(&golden->tensors[r]);
        for (int64_t i = 0; i < count; i++)
            oct_error_sums_add(&sums, value_at(&golden->tensors[r], i),
                               value_at(&made->tensors[r], i), i);
        oct_numerics_row row = {.op = c->op,
                                .data = distribution_names[c->data],
                                .format = format,
                                .tensor = golden->names[r]};
        memcpy(row.shape, c->shape, sizeof row.shape);
        OCT_TRY(oct_numerics_add(s->numerics, &row, &sums, err));
    }
    return OCT_OK;
}

static oct_status run_case(stand *s, const product_case *c, oct_err *err)
{
    results golden = {0};
    OCT_TRY(c->pass(s, c, NULL, &golden, err));
    oct_arena_reset(&s->step);
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        const oct_low_precision_format *format = oct_low_precision_formats[f];
        const oct_low_precision_policy policy = oct_low_precision_policy_of(format->recipe);
        results made = {0};
        OCT_TRY(oct_low_precision_gate(&policy, &s->kernels, "cpu", err));
        OCT_TRY(c->pass(s, c, &policy, &made, err));
        OCT_TRY(compare(s, c, format->name, &golden, &made, err));
        oct_arena_reset(&s->step);
    }
    return OCT_OK;
}

static oct_status run_dense(stand *s, distribution data, int64_t tokens, int64_t in, int64_t out,
                            oct_err *err)
{
    product_case c = {.op = "dense", .data = data, .rows = tokens, .in = in, .out = out};
    c.pass = dense_pass;
    (void)snprintf(c.shape, sizeof c.shape, "%lldx%lldx%lld", (long long)tokens, (long long)in,
                   (long long)out);
    OCT_TRY(fill_narrow(s, "dense x", data, 1.0, tokens, in, &c.x, err));
    OCT_TRY(fill_narrow(s, "dense dy", data, 1e-3, tokens, out, &c.dy, err));
    OCT_TRY(fill(s, "dense w", data, 0.02, out, in, &c.masters[0], err));
    return run_case(s, &c, err);
}

/* Rows of each group: one full block and more, short blocks, one row, none. */
static oct_status run_grouped(stand *s, distribution data, bool experts, const int64_t *rows,
                              int64_t count, int64_t in, int64_t out, oct_err *err)
{
    int64_t ends[MAX_GROUPS];
    product_case c = {.op = experts ? "experts" : "grouped", .data = data, .in = in, .out = out};
    int length = snprintf(c.shape, sizeof c.shape, "(");
    for (int64_t g = 0; g < count; g++) {
        ends[g] = c.rows += rows[g];
        length += snprintf(c.shape + length, sizeof c.shape - (size_t)length, "%s%lld",
                           g ? "," : "", (long long)rows[g]);
    }
    (void)snprintf(c.shape + length, sizeof c.shape - (size_t)length, ")x%lldx%lld", (long long)in,
                   (long long)out);
    c.groups = (oct_groups){.count = count, .ends = ends};
    c.pass = experts ? experts_pass : grouped_pass;
    OCT_TRY(fill_narrow(s, "grouped x", data, 1.0, c.rows, in, &c.x, err));
    OCT_TRY(fill_narrow(s, "grouped dy", data, 1e-3, c.rows, experts ? in : out, &c.dy, err));
    OCT_TRY(fill(s, "grouped w", data, 0.05, count * (experts ? 2 * out : out), in, &c.masters[0],
                 err));
    if (experts)
        OCT_TRY(fill(s, "grouped down", data, 0.05, count * in, out, &c.masters[1], err));
    return run_case(s, &c, err);
}

static oct_status run_cases(stand *s, distribution data, oct_err *err)
{
    static const int64_t dense[][3] = {{64, 96, 128}, {45, 200, 72}, {192, 384, 256}};
    static const int64_t uneven[] = {33, 1, 0, 64, 31, 7}, even[] = {32, 32, 32, 32};
    static const int64_t first_and_last_empty[] = {0, 80, 48, 0};
    for (size_t i = 0; i < sizeof dense / sizeof dense[0]; i++) {
        oct_arena_reset(&s->inputs);
        OCT_TRY(run_dense(s, data, dense[i][0], dense[i][1], dense[i][2], err));
    }
    oct_arena_reset(&s->inputs);
    OCT_TRY(run_grouped(s, data, false, uneven, 6, 160, 96, err));
    oct_arena_reset(&s->inputs);
    OCT_TRY(run_grouped(s, data, false, even, 4, 128, 64, err));
    oct_arena_reset(&s->inputs);
    OCT_TRY(run_grouped(s, data, false, first_and_last_empty, 4, 72, 136, err));
    oct_arena_reset(&s->inputs);
    OCT_TRY(run_grouped(s, data, true, uneven, 6, 128, 80, err));
    oct_arena_reset(&s->inputs);
    return run_grouped(s, data, true, even, 4, 96, 64, err);
}

oct_status oct_numerics_products(oct_numerics *numerics, oct_err *err)
{
    oct_isa isa = OCT_ISA_REF;
    OCT_TRY(oct_isa_choose(&isa, err));
    stand s = {.numerics = numerics};
    oct_kernels_init(&s.kernels, isa);
    oct_arena_init(&s.scratch, "scratch");
    oct_arena_init(&s.step, "step");
    oct_arena_init(&s.inputs, "inputs");
    s.exec = (oct_exec){.kernels = &s.kernels, .threads = 1, .scratch = &s.scratch};
    s.run = (oct_run){.exec = &s.exec,
                      .step = &s.step,
                      .act_dtype = OCT_DTYPE_BF16,
                      .reduce_dtype = OCT_DTYPE_F32,
                      .training = true};
    oct_status status = OCT_OK;
    for (int d = 0; d < DISTRIBUTIONS && status == OCT_OK; d++)
        status = run_cases(&s, (distribution)d, err);
    oct_arena_release(&s.inputs);
    oct_arena_release(&s.step);
    oct_arena_release(&s.scratch);
    return status;
}
