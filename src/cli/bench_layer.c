/* octet bench layer: one linear layer end to end, fprop + dgrad + wgrad, with quantization and
 * packing of everything but the weight. */
#include <stdio.h>

#include "cli/bench_harness.h"
#include "low_precision/config.h"
#include "low_precision/functional/linear.h"

typedef struct layer {
    oct_bench *bench;
    oct_run run;
    oct_weight_storage *weight; /* NULL: BF16 */
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

static oct_status one_case(oct_bench *bench, int64_t t, int64_t i, int64_t o, oct_err *err)
{
    const oct_arena_mark mark = oct_arena_save(&bench->memory);
    oct_tensor x, w, dy, y, dx, dw, wide;
    OCT_TRY(oct_bench_gaussian(bench, "x", t, i, 1.0f, &x, err));
    OCT_TRY(oct_bench_gaussian(bench, "w", o, i, 0.02f, &w, err));
    OCT_TRY(oct_bench_gaussian(bench, "dy", t, o, 1e-4f, &dy, err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_BF16, t, o, &y, err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_BF16, t, i, &dx, err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_F32, o, i, &dw, err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_F32, o, i, &wide, err));
    OCT_TRY(oct_convert(&bench->exec, &w, &wide, err));
    layer layers[3];
    oct_bench_variant variants[3];
    oct_param param = {.fqn = (char[]){"bench.weight"}, .ndim = 2, .shape = {o, i}, .rows = o};
    int count = 0;
    oct_status status = OCT_OK;
    for (int f = -1; status == OCT_OK && (f < 0 || oct_low_precision_formats[f]) && count < 3;
         f++) {
        layer *l = &layers[count];
        *l = (layer){.bench = bench,
                     .run = {.exec = &bench->exec,
                             .step = &bench->step,
                             .act_dtype = OCT_DTYPE_BF16,
                             .reduce_dtype = OCT_DTYPE_F32,
                             .training = true},
                     .x = x,
                     .w = w,
                     .dy = dy,
                     .y = y,
                     .dx = dx,
                     .dw = dw};
        variants[count] = (oct_bench_variant){
            .format = f < 0 ? "bf16" : oct_low_precision_formats[f]->name,
            .work = 6.0 * (double)t * (double)i * (double)o,
            .run = f < 0 ? run_bf16 : run_8bit,
            .arg = l,
        };
        if (f >= 0) {
            const oct_low_precision_policy policy =
                oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe);
            status =
                oct_weight_create(&bench->memory, &policy, &param, OCT_DTYPE_BF16, &l->weight, err);
            if (status == OCT_OK)
                status = oct_weight_refresh(&bench->exec, NULL, l->weight, wide.data, NULL, err);
        }
        count++;
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%lldx%lldx%lld", (long long)t, (long long)i, (long long)o);
    if (status == OCT_OK)
        status = oct_bench_case(bench, "layer", name, variants, count, 1e9, "GFLOP/s", err);
    for (int f = 0; f < count; f++)
        if (layers[f].weight)
            oct_weight_release(layers[f].weight);
    oct_arena_rewind(&bench->memory, mark);
    return status;
}

oct_status oct_bench_layer(oct_bench *bench, oct_err *err)
{
    static const int64_t shapes[][3] = {
        {2048, 2048, 2048},
        {512, 2048, 2048},
        {192, 2048, 2816},
        {2048, 256, 704},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        OCT_TRY(one_case(bench, shapes[s][0], shapes[s][1], shapes[s][2], err));
    return OCT_OK;
}
