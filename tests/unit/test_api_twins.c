/* The public functions, from the shared library, and the internal ones that they stand for give the
 * same bytes: odd shapes, every instruction set, threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <octet/octet.h>
#include <stdlib.h>
#include <string.h>

#include "low_precision/hif8/hif8.h"
#include "low_precision/matmul.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "low_precision/quantizer.h"
#include "numeric/bf16.h"

static oct_arena arena, scratch;

/* Numbers of both signs over some 40 powers of two, and a NaN where asked for. */
static float *numbers(int64_t count, uint32_t seed)
{
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    uint64_t state = seed;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint32_t word = (uint32_t)(state >> 32);
        x[i] = oct_f32_from_bits((word & 0x807fffffu) | (107u + (word >> 23) % 40u) << 23);
    }
    return x;
}

typedef struct side {
    oct_operand twin;
    octet_operand operand;
} side;

/* Both ways to an operand, and the comparison. */
static void quantize_both(const octet_context *context, const oct_exec *exec,
                          const oct_low_precision_format *format, int index, const float *x,
                          int64_t rows, int64_t cols, octet_orientation orientation,
                          octet_role role, const oct_groups *groups, side *out)
{
    static const oct_role roles[] = {OCT_ROLE_INPUT_FWD, OCT_ROLE_WEIGHT_FWD, OCT_ROLE_GRAD_OUTPUT};
    oct_err err = {0};
    octet_error error = {0};
    const bool row = orientation == OCTET_ORIENTATION_ROW;
    const oct_tensor tensor = oct_tensor_2d((void *)(uintptr_t)x, OCT_DTYPE_F32, rows, cols);
    const oct_lazy source = oct_lazy_of(&tensor);
    const oct_quantize_want want = {.operand = &out->twin, .arena = &arena}, no = {0};
    assert_int_equal(format->quantize(exec, oct_recipe_quantizer(format->recipe, roles[role]),
                                      &source, groups, row ? &want : &no, row ? &no : &want, &err),
                     OCT_OK);
    octet_operand *o = &out->operand;
    *o = (octet_operand)OCTET_OPERAND_INIT;
    o->format = (octet_format)index;
    o->orientation = orientation;
    o->rows = rows;
    o->cols = cols;
    if (groups)
        o->groups = (octet_groups){groups->count, groups->ends};
    assert_int_equal(octet_operand_bytes(o, &o->codes_bytes, &o->scales_bytes, NULL), OCTET_OK);
    assert_int_equal(o->codes_bytes, oct_tensor_bytes(&out->twin.data));
    assert_int_equal(o->scales_bytes, oct_tensor_bytes(&out->twin.scales));
    size_t bytes = 0;
    assert_int_equal(octet_quantize_workspace_bytes(o, &bytes, NULL), OCTET_OK);
    void *workspace = NULL;
    assert_int_equal(oct_arena_alloc(&arena, o->codes_bytes, &o->codes, &err), OCT_OK);
    assert_int_equal(oct_arena_alloc(&arena, o->scales_bytes, &o->scales, &err), OCT_OK);
    assert_int_equal(oct_arena_alloc(&arena, bytes, &workspace, &err), OCT_OK);
    octet_quantize_settings settings = OCTET_QUANTIZE_SETTINGS_INIT;
    settings.role = role;
    if (octet_quantize(context, OCTET_DTYPE_F32, x, (size_t)(rows * cols) * sizeof *x, &settings,
                       row ? o : NULL, row ? NULL : o, workspace, bytes, &error) != OCTET_OK)
        fail_msg("%s", error.message);
    assert_memory_equal(o->codes, out->twin.data.data, o->codes_bytes);
    assert_memory_equal(o->scales, out->twin.scales.data, o->scales_bytes);
}

static void multiply_both(const octet_context *context, const oct_exec *exec, side *left,
                          side *right, octet_layout layout, int64_t m, int64_t n,
                          const oct_groups *groups)
{
    oct_err err = {0};
    octet_error error = {0};
    const int64_t rows = groups && layout == OCTET_LAYOUT_TN ? m * groups->count : m;
    const size_t bytes = (size_t)(rows * n) * sizeof(uint16_t);
    void *twin = NULL, *found = NULL, *workspace = NULL;
    assert_int_equal(oct_arena_zalloc(&arena, bytes, &twin, &err), OCT_OK);
    assert_int_equal(oct_arena_zalloc(&arena, bytes, &found, &err), OCT_OK);
    const oct_gemm_out out = {.data = twin, .ld = n, .dtype = OCT_DTYPE_BF16};
    const oct_run run = {.exec = exec};
    const oct_matmul_label label = {.fqn = "twin", .phase = "fprop"};
    const oct_status status =
        groups ? oct_low_precision_grouped_matmul(&run, &label, &left->twin, &right->twin,
                                                  (oct_layout)layout, groups, &out, &err)
               : oct_low_precision_matmul(&run, &label, &left->twin, &right->twin,
                                          (oct_layout)layout, &out, &err);
    if (status != OCT_OK)
        fail_msg("%s", err.msg);
    const octet_groups list = {groups ? groups->count : 0, groups ? groups->ends : NULL};
    size_t room = 0;
    assert_int_equal(octet_product_workspace_bytes(context, &left->operand, &right->operand, layout,
                                                   groups ? &list : NULL, &room, NULL),
                     OCTET_OK);
    assert_int_equal(oct_arena_alloc(&arena, room, &workspace, &err), OCT_OK);
    octet_output output = OCTET_OUTPUT_INIT;
    output.dtype = OCTET_DTYPE_BF16;
    output.data = found;
    output.data_bytes = bytes;
    output.ld = n;
    const octet_status s =
        groups ? octet_grouped_product(context, &left->operand, &right->operand, layout, &list,
                                       &output, NULL, workspace, room, &error)
               : octet_product(context, &left->operand, &right->operand, layout, &output, NULL,
                               workspace, room, &error);
    if (s != OCTET_OK)
        fail_msg("%s", error.message);
    assert_memory_equal(found, twin, bytes);
}

static void check_shape(const octet_context *context, const oct_exec *exec, int64_t m, int64_t n,
                        int64_t k)
{
    static const oct_low_precision_format *const formats[] = {&oct_mxfp8_format, &oct_hif8_format};
    const int64_t ends[] = {k / 3, k / 3, k};
    const oct_groups groups = {.count = 3, .ends = ends};
    const octet_orientation row = OCTET_ORIENTATION_ROW, col = OCTET_ORIENTATION_COL;
    float *x = numbers(m * k, 1), *w = numbers(n * k, 2);
    for (int f = 0; f < 2; f++) {
        side left, right;
        quantize_both(context, exec, formats[f], f, x, m, k, row, OCTET_ROLE_INPUT, NULL, &left);
        quantize_both(context, exec, formats[f], f, w, n, k, row, OCTET_ROLE_WEIGHT, NULL, &right);
        multiply_both(context, exec, &left, &right, OCTET_LAYOUT_NT, m, n, NULL);
        quantize_both(context, exec, formats[f], f, w, k, n, col, OCTET_ROLE_WEIGHT, NULL, &right);
        multiply_both(context, exec, &left, &right, OCTET_LAYOUT_NN, m, n, NULL);
        quantize_both(context, exec, formats[f], f, x, k, m, col, OCTET_ROLE_GRADIENT, NULL, &left);
        multiply_both(context, exec, &left, &right, OCTET_LAYOUT_TN, m, n, NULL);
        quantize_both(context, exec, formats[f], f, x, k, m, col, OCTET_ROLE_GRADIENT, &groups,
                      &left);
        quantize_both(context, exec, formats[f], f, w, k, n, col, OCTET_ROLE_INPUT, &groups,
                      &right);
        multiply_both(context, exec, &left, &right, OCTET_LAYOUT_TN, m, n, &groups);
        oct_arena_reset(&arena);
    }
    free(x);
    free(w);
}

static void public_functions__odd_shapes__bytes_of_the_internal_ones(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},    {3, 5, 31},    {14, 32, 64},
                                        {15, 33, 65}, {70, 47, 130}, {2, 63, 2100}};
    static _Alignas(64) unsigned char memory[16384];
    oct_arena_init(&arena, "test");
    oct_arena_init(&scratch, "scratch");
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        for (int threads = 1; threads <= 2; threads++) {
            oct_kernels kernels;
            octet_context *context = NULL;
            const octet_context_settings settings = {sizeof settings,
                                                     (octet_isa)(isa + OCTET_ISA_REF), 3 - threads};
            oct_kernels_init(&kernels, (oct_isa)isa);
            const oct_exec exec = {.kernels = &kernels, .threads = threads, .scratch = &scratch};
            assert_int_equal(octet_context_init(memory, sizeof memory, &settings, &context, NULL),
                             OCTET_OK);
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
                check_shape(context, &exec, shapes[i][0], shapes[i][1], shapes[i][2]);
        }
    oct_arena_release(&arena);
    oct_arena_release(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(public_functions__odd_shapes__bytes_of_the_internal_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
