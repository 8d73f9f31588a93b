/* A format for tests: MXFP8 behind a table that records what its operators are called with and can
 * be told to fail. Include after low_precision_fixture.h. */
#ifndef OCT_TESTS_FAKE_FORMAT_H
#define OCT_TESTS_FAKE_FORMAT_H

#include "low_precision/mxfp8/mxfp8.h"

typedef enum fake_kind { FAKE_QUANTIZE, FAKE_MATMUL } fake_kind;

typedef struct fake_call {
    fake_kind kind;
    const oct_quantizer *quantizer; /* quantize */
    bool row, col;                  /* quantize: which orientations */
    oct_layout layout;              /* matmul */
    oct_operand left, right;
    int64_t groups;
    oct_gemm_out out;
} fake_call;

enum { FAKE_MAX_CALLS = 64 };

static struct {
    int count;
    fake_call calls[FAKE_MAX_CALLS];
    int refreshes;
    int fail_quantize_at, fail_matmul_at; /* number of the call that fails, 0: none */
    int quantizes, matmuls;
} fake;

static oct_status fake_quantize(const oct_exec *exec, const oct_quantizer *quantizer,
                                const oct_lazy *x, const oct_groups *groups,
                                const oct_quantize_want *row, const oct_quantize_want *col,
                                oct_err *err)
{
    assert_true(fake.count < FAKE_MAX_CALLS);
    fake.calls[fake.count++] = (fake_call){.kind = FAKE_QUANTIZE,
                                           .quantizer = quantizer,
                                           .row = row->operand != NULL,
                                           .col = col->operand != NULL,
                                           .groups = groups->count};
    if (++fake.quantizes == fake.fail_quantize_at)
        return OCT_FAIL(err, OCT_E_KERNEL, "injected quantizer failure");
    return oct_mxfp8_format.quantize(exec, quantizer, x, groups, row, col, err);
}

static oct_status fake_matmul(const oct_exec *exec, const oct_operand *left,
                              const oct_operand *right, oct_layout layout, const oct_groups *groups,
                              const oct_gemm_out *out, oct_matmul_routes *routes, oct_err *err)
{
    assert_true(fake.count < FAKE_MAX_CALLS);
    fake.calls[fake.count++] = (fake_call){.kind = FAKE_MATMUL,
                                           .layout = layout,
                                           .left = *left,
                                           .right = *right,
                                           .groups = groups ? groups->count : 0,
                                           .out = *out};
    if (++fake.matmuls == fake.fail_matmul_at)
        return OCT_FAIL(err, OCT_E_KERNEL, "injected matmul failure");
    return oct_mxfp8_format.matmul(exec, left, right, layout, groups, out, routes, err);
}

static oct_status fake_refresh(const oct_exec *exec, oct_weight_storage *weight,
                               const oct_tensor *master, oct_err *err)
{
    fake.refreshes++;
    return oct_mxfp8_format.refresh(exec, weight, master, err);
}

static oct_low_precision_format fake_format;
static oct_quantizer
    fake_quantizers[OCT_ROLE_COUNT]; /* one per role, so that calls tell them apart */
static oct_low_precision_recipe fake_recipe = {.name = "fake"};

/* A policy over the fake format. shared: one quantizer for all roles, as MXFP8 has it; otherwise
 * one each, so that a call shows its role. */
static oct_low_precision_policy fake_policy(bool shared)
{
    memset(&fake, 0, sizeof fake);
    fake_format = oct_mxfp8_format;
    fake_format.name = "fake";
    fake_format.quantize = fake_quantize;
    fake_format.matmul = fake_matmul;
    fake_format.refresh = fake_refresh;
    for (int role = 0; role < OCT_ROLE_COUNT; role++) {
        fake_quantizers[role] = (oct_quantizer){
            .format = &fake_format,
            .settings =
                oct_recipe_quantizer(oct_mxfp8_format.recipe, OCT_ROLE_INPUT_FWD)->settings};
        fake_recipe.quantizers[role] = &fake_quantizers[shared ? 0 : role];
    }
    return oct_low_precision_policy_of(&fake_recipe);
}

#endif
