/* A place to run low-precision computations in tests: kernels, arenas, a run, and a record of the
 * events it emitted. Include after cmocka.h. */
#ifndef OCT_TESTS_LOW_PRECISION_FIXTURE_H
#define OCT_TESTS_LOW_PRECISION_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "low_precision/config.h"
#include "low_precision/weight.h"
#include "module/run.h"

enum { MAX_EVENTS = 512, EVENT_TEXT = 96 };

typedef struct recorded_event {
    oct_trace_event event; /* its fqn points at `fqn` */
    char fqn[EVENT_TEXT];
} recorded_event;

typedef struct bench {
    oct_kernels kernels;
    oct_arena scratch, step, persist;
    oct_exec exec;
    oct_trace trace;
    oct_run run;
    oct_err err;
    int event_count;
    recorded_event events[MAX_EVENTS];
} bench;

static inline void record_event(void *arg, const oct_trace *trace, const oct_trace_event *event)
{
    (void)trace;
    bench *b = arg;
    assert_true(b->event_count < MAX_EVENTS);
    recorded_event *to = &b->events[b->event_count++];
    to->event = *event;
    snprintf(to->fqn, sizeof to->fqn, "%s", event->fqn ? event->fqn : "");
    to->event.fqn = to->fqn;
}

static inline bench *bench_new(oct_isa isa, oct_dtype act_dtype)
{
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    oct_kernels_init(&b->kernels, isa);
    oct_arena_init(&b->scratch, "scratch");
    oct_arena_init(&b->step, "step");
    oct_arena_init(&b->persist, "persist");
    b->exec = (oct_exec){.kernels = &b->kernels, .threads = 1, .scratch = &b->scratch};
    b->trace = (oct_trace){.sink = record_event, .sink_arg = b};
    b->run = (oct_run){.exec = &b->exec,
                       .step = &b->step,
                       .trace = &b->trace,
                       .act_dtype = act_dtype,
                       .reduce_dtype = OCT_DTYPE_F32,
                       .training = true};
    return b;
}

static inline void bench_free(bench *b)
{
    assert_int_equal(b->scratch.used_bytes, 0); /* every driver gave its scratch back */
    oct_arena_release(&b->scratch);
    oct_arena_release(&b->step);
    oct_arena_release(&b->persist);
    free(b);
}

#define assert_ok(b, call)                                                                         \
    do {                                                                                           \
        (b)->err = (oct_err){0};                                                                   \
        if ((call) != OCT_OK)                                                                      \
            fail_msg("%s", (b)->err.msg);                                                          \
    } while (0)

#define assert_fails(b, call, expected, text)                                                      \
    do {                                                                                           \
        (b)->err = (oct_err){0};                                                                   \
        assert_int_equal((call), (expected));                                                      \
        if (!strstr((b)->err.msg, (text)))                                                         \
            fail_msg("'%s' is not in '%s'", (text), (b)->err.msg);                                 \
    } while (0)

static inline oct_tensor tensor_f32(bench *b, int64_t rows, int64_t cols)
{
    oct_tensor t;
    assert_ok(b, oct_tensor_new_2d(&b->persist, OCT_DTYPE_F32, rows, cols, &t, &b->err));
    memset(t.data, 0, oct_tensor_bytes(&t));
    return t;
}

static inline float *f32(const oct_tensor *t)
{
    return t->data;
}

/* Reproducible values in (-1, 1), exact in FP32, another sequence for each seed. */
static inline void fill_f32(float *x, int64_t n, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 12345u;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)((int32_t)(state >> 8) - (1 << 23)) * 0x1p-23f;
    }
}

/* A refreshed weight over `master`. */
static inline oct_weight_storage *weight_of(bench *b, const oct_low_precision_policy *policy,
                                            const char *fqn, int ndim, const int64_t *shape,
                                            const float *master)
{
    char *name = malloc(strlen(fqn) + 1);
    oct_param *param = calloc(1, sizeof *param);
    assert_non_null(name);
    assert_non_null(param);
    memcpy(name, fqn, strlen(fqn) + 1);
    *param = (oct_param){.fqn = name, .ndim = ndim, .requires_grad = true};
    param->rows = shape[0];
    memcpy(param->shape, shape, (size_t)ndim * sizeof *shape);
    oct_weight_storage *weight = NULL;
    assert_ok(b, oct_weight_create(&b->persist, policy, param, OCT_DTYPE_F32, &weight, &b->err));
    if (master)
        assert_ok(b, oct_weight_refresh(&b->exec, &b->trace, weight, master, NULL, &b->err));
    free(param);
    return weight;
}

/* weight_of made the name. */
static inline void weight_free(oct_weight_storage *weight)
{
    char *name;
    memcpy(&name, &weight->fqn, sizeof name);
    free(name);
    oct_weight_release(weight);
}

static inline oct_gemm_out store_f32(const oct_tensor *c)
{
    return (oct_gemm_out){
        .data = c->data, .ld = oct_tensor_cols(c), .dtype = OCT_DTYPE_F32, .store = OCT_GEMM_STORE};
}

#endif
