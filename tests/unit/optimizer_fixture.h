/* A module tree of three parameters with gradients, and an exec. */
#ifndef OCT_TESTS_OPTIMIZER_FIXTURE_H
#define OCT_TESTS_OPTIMIZER_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "kernels/exec.h"
#include "module/module.h"
#include "optim/optimizer.h"

enum { FIX_PARAMS = 3 };

typedef struct fixture {
    oct_module_tree tree;
    oct_kernels kernels;
    oct_arena scratch;
    oct_exec exec;
    oct_param *params[FIX_PARAMS]; /* weight [70,33], experts [3,4,21], norm [19] */
} fixture;

static const oct_module_type fixture_type = {.name = "test.Module"};

static void fixture_fill(float *out, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(int32_t)seed * 4.6566129e-10f;
    }
}

/* Initial values and gradients depend on `seed`. */
static void fixture_init(fixture *fix, oct_isa isa, int threads, uint32_t seed)
{
    static const int64_t shapes[FIX_PARAMS][3] = {{70, 33}, {3, 4, 21}, {19}};
    static const int ndims[FIX_PARAMS] = {2, 3, 1};
    static const char *const names[FIX_PARAMS] = {"weight", "gate_up_proj", "scale"};
    oct_err err = {0};
    oct_module *module = NULL, *child = NULL;
    memset(fix, 0, sizeof *fix);
    oct_module_tree_init(&fix->tree);
    oct_kernels_init(&fix->kernels, isa);
    oct_arena_init(&fix->scratch, "scratch");
    fix->exec = (oct_exec){.kernels = &fix->kernels, .threads = threads, .scratch = &fix->scratch};
    assert_int_equal(oct_module_add(&fix->tree, NULL, "", &fixture_type, FIX_PARAMS, &module, &err),
                     OCT_OK);
    for (int i = 0; i < FIX_PARAMS; i++) {
        assert_int_equal(oct_module_add(&fix->tree, module,
                                        i == 2   ? "norm"
                                        : i == 1 ? "experts"
                                                 : "proj",
                                        &fixture_type, 1, &child, &err),
                         OCT_OK);
        assert_int_equal(oct_module_add_param(&fix->tree, child, names[i], ndims[i], shapes[i],
                                              &fix->params[i], &err),
                         OCT_OK);
        oct_param *param = fix->params[i];
        const int64_t n = oct_param_numel(param);
        param->requires_grad = true;
        param->init = malloc((size_t)n * sizeof(float));
        param->grad = malloc((size_t)n * sizeof(float));
        fixture_fill(param->init, n, seed + (uint32_t)i);
        fixture_fill(param->grad, n, seed + 100 + (uint32_t)i);
        param->grad_started = true;
    }
}

static void fixture_release(fixture *fix)
{
    for (int i = 0; i < FIX_PARAMS; i++) {
        free(fix->params[i]->grad);
        fix->params[i]->grad = NULL;
    }
    oct_arena_release(&fix->scratch);
    oct_module_tree_release(&fix->tree);
}

#endif
