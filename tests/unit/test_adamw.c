/* What one AdamW update does to the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "kernels/exec.h"
#include "numeric/fmath.h"

static oct_kernels kernels;
static oct_arena scratch;
static const oct_exec *exec_of(oct_isa isa)
{
    static oct_exec exec;
    oct_kernels_init(&kernels, isa);
    exec = (oct_exec){.kernels = &kernels, .threads = 1, .scratch = &scratch};
    return &exec;
}

enum { N = 77 };

/* The paper's update in FP64 from the same FP32 state stays within FP32 rounding. */
static void adamw__random_state__close_to_fp64(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        float g[N], w[N], m[N] = {0}, v[N] = {0};
        uint32_t seed = 9;
        for (int i = 0; i < N; i++) {
            seed = seed * 1664525u + 1013904223u;
            g[i] = (float)(int32_t)seed * 1e-9f;
            w[i] = (float)(int32_t)(seed * 77u) * 1e-9f;
        }
        for (int t = 1; t <= 5; t++) {
            const oct_adamw_step step = {.lr = 3e-3,
                                         .beta1 = 0.9,
                                         .beta2 = 0.95,
                                         .eps = 1e-8,
                                         .weight_decay = 0.1,
                                         .bias1 = 1.0 - oct_powi(0.9, t),
                                         .bias2 = 1.0 - oct_powi(0.95, t),
                                         .grad_scale = 0.5f};
            double wanted[N];
            for (int i = 0; i < N; i++) {
                const double gs = 0.5 * (double)g[i];
                const double mm = 0.9 * (double)m[i] + 0.1 * gs;
                const double vv = 0.95 * (double)v[i] + 0.05 * gs * gs;
                wanted[i] =
                    (double)w[i] * (1.0 - 3e-3 * 0.1) -
                    3e-3 * (mm / (1.0 - pow(0.9, t))) / (sqrt(vv / (1.0 - pow(0.95, t))) + 1e-8);
            }
            assert_int_equal(oct_adamw(exec_of((oct_isa)isa), &step, N, g, w, m, v, NULL), OCT_OK);
            for (int i = 0; i < N; i++)
                if (!(fabs((double)w[i] - wanted[i]) <= 1e-6))
                    fail_msg("isa %d step %d element %d: %.9g, %.9g is required", isa, t, i,
                             (double)w[i], wanted[i]);
        }
    }
}

/* FR-17: updates far below BF16's spacing at 1.0 (0.0078) add up. */
static void adamw__w_1_update_6e_4__moves_by_0_06(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        float g = 1.0f, w = 1.0f, m = 0.0f, v = 0.0f;
        for (int t = 1; t <= 100; t++) {
            const oct_adamw_step step = {.lr = 6e-4,
                                         .beta1 = 0.9,
                                         .beta2 = 0.95,
                                         .eps = 1e-8,
                                         .bias1 = 1.0 - oct_powi(0.9, t),
                                         .bias2 = 1.0 - oct_powi(0.95, t),
                                         .grad_scale = 1.0f};
            assert_int_equal(oct_adamw(exec_of((oct_isa)isa), &step, 1, &g, &w, &m, &v, NULL),
                             OCT_OK);
        }
        if (!(fabs((double)w - 0.94) < 1e-5))
            fail_msg("w = %.9g, 0.94 is required", (double)w);
    }
}

/* Decay acts on the weight alone: no gradient, no moments, only w *= 1 - lr*decay. */
static void adamw__zero_gradient__pure_decay(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        float g = 0.0f, w = 2.0f, m = 0.0f, v = 0.0f;
        const oct_adamw_step step = {.lr = 0.5,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .weight_decay = 0.5,
                                     .bias1 = 0.1,
                                     .bias2 = 0.05,
                                     .grad_scale = 1.0f};
        assert_int_equal(oct_adamw(exec_of((oct_isa)isa), &step, 1, &g, &w, &m, &v, NULL), OCT_OK);
        assert_true(w == 1.5f && m == 0.0f && v == 0.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw__random_state__close_to_fp64),
        cmocka_unit_test(adamw__w_1_update_6e_4__moves_by_0_06),
        cmocka_unit_test(adamw__zero_gradient__pure_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
