/* What the trace of a run proves: every product has its event, gradients are added to their sum
 * tile by tile without a second full gradient, and weights are quantized once a successful step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>

#include "train_fixture.h"

enum { TOKENS = 8, HIDDEN = 256, WIDE = 1024, STEPS = 3, SKIPPED = 2, MICRO_STEPS = 2 };
enum { ATTEMPTS = STEPS + 1, WEIGHTS = 16 };

/* The events of a run, in order. */
static json_t *read_events(const char *run)
{
    FILE *file = fopen(word("%s/%s/trace-0.jsonl", files.path, run), "r");
    assert_non_null(file);
    json_t *events = json_array();
    char line[4096];
    while (fgets(line, sizeof line, file)) {
        json_t *event = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(event);
        assert_int_equal(json_array_append_new(events, event), 0);
    }
    fclose(file);
    return events;
}

static const char *text(const json_t *event, const char *key)
{
    const char *value = json_string_value(json_object_get(event, key));
    return value ? value : "";
}

static int64_t number(const json_t *event, const char *key)
{
    return json_integer_value(json_object_get(event, key));
}

static bool is(const json_t *event, const char *key, const char *value)
{
    return strcmp(text(event, key), value) == 0;
}

/* Few tokens and wide matrices: whatever grows with tokens is small beside a gradient. The second
 * attempt is skipped. */
static json_t *trace_of(int format)
{
    oct_err err = {0};
    record *r = record_create();
    const char *run = word("run-%d", format);
    assert_int_equal(oct_fault_arm("trainer.gradient", SKIPPED, OCT_FAULT_FAIL, &err), OCT_OK);
    train(&files, run, format, NULL,
          WORDS("trace=true", word("training.train_iters=%d", STEPS), "training.seq_length=8",
                "training.micro_batch_size=1", "training.global_batch_size=2",
                word("model.config_overrides.hidden_size=%d", HIDDEN),
                word("model.config_overrides.intermediate_size=%d", WIDE)),
          r);
    oct_fault_disarm_all();
    assert_trained(r);
    assert_int_equal(r->attempts, ATTEMPTS);
    free(r);
    return read_events(run);
}

static void assert_shape(const json_t *event, const char *key, int64_t rows, int64_t cols)
{
    const json_t *shape = json_object_get(event, key);
    assert_int_equal(json_array_size(shape), 2);
    assert_int_equal(json_integer_value(json_array_get(shape, 0)), rows);
    assert_int_equal(json_integer_value(json_array_get(shape, 1)), cols);
}

/* [tokens, in] W^T of one module: one product of each phase in each micro-batch. */
static void assert_products(const json_t *events, const char *fqn, const char *format, int64_t in,
                            int64_t out)
{
    const struct {
        const char *phase, *layout;
        int64_t m, k, n;
    } phases[] = {{"fprop", "NT", TOKENS, in, out},
                  {"dgrad", "NN", TOKENS, out, in},
                  {"wgrad", "TN", out, TOKENS, in}};
    int count[3] = {0};
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (!is(event, "event", "matmul") || !is(event, "fqn", fqn))
            continue;
        assert_string_equal(text(event, "kernel"), "fma");
        assert_string_equal(text(event, "format"), format);
        for (int p = 0; p < 3; p++) {
            if (!is(event, "phase", phases[p].phase))
                continue;
            count[p]++;
            assert_string_equal(text(event, "layout"), phases[p].layout);
            assert_shape(event, "shape", phases[p].m, phases[p].k);
            assert_shape(event, "right_shape", phases[p].k, phases[p].n);
            assert_shape(event, "output_shape", phases[p].m, phases[p].n);
        }
    }
    for (int p = 0; p < 3; p++)
        assert_int_equal(count[p], ATTEMPTS * MICRO_STEPS);
}

static void assert_head_and_router(const json_t *events)
{
    assert_products(events, "lm_head", "bf16", HIDDEN, 257);
    assert_products(events, "model.layers.1.mlp.gate", "float32", HIDDEN, 4);
}

/* A finished gradient is stored, or added to the sum of the micro-batches before, tile by tile: no
 * temporary memory is as large as the gradient of a wide matrix. */
static void assert_no_second_gradient(const json_t *events)
{
    int wide = 0, folded = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (!is(event, "phase", "wgrad") || is(event, "scale_dtype", ""))
            continue;
        assert_string_equal(text(event, "dtype"), "float32");
        assert_string_equal(text(event, "store"),
                            number(event, "micro_step") == 0 ? "store" : "fold");
        folded += is(event, "store", "fold");
        const json_t *shape = json_object_get(event, "output_shape");
        int64_t bytes = sizeof(float);
        for (size_t d = 0; d < json_array_size(shape); d++)
            bytes *= json_integer_value(json_array_get(shape, d));
        assert_true(number(event, "scratch_bytes") > 0);
        if (bytes < (int64_t)sizeof(float) * HIDDEN * WIDE)
            continue;
        wide++;
        if (number(event, "scratch_bytes") > bytes / 2)
            fail_msg("%s: %lld bytes of scratch for a gradient of %lld", text(event, "fqn"),
                     (long long)number(event, "scratch_bytes"), (long long)bytes);
    }
    assert_true(wide >= 3 * ATTEMPTS * MICRO_STEPS); /* gate, up and down of layer 0 */
    assert_true(folded >= WEIGHTS * ATTEMPTS * (MICRO_STEPS - 1));
}

/* One refresh of each weight, and in it one quantization for each of the two directions: when the
 * model is built, and after each successful step; none after the skip. */
static void assert_weights_quantized_once(const json_t *events)
{
    int counts[STEPS][2] = {{0}}, refreshes[STEPS] = {0}, skips = 0;
    bool after_skip = false;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const int64_t step = number(event, "step");
        const bool fwd = is(event, "role", "weight_fwd"), bwd = is(event, "role", "weight_bwd");
        if (is(event, "event", "skip")) {
            skips++;
            after_skip = true;
        }
        if (is(event, "event", "matmul"))
            after_skip = false;
        if (is(event, "event", "refresh")) {
            assert_false(after_skip);
            refreshes[step]++;
        }
        if (fwd || bwd) {
            assert_string_equal(text(event, "event"), "quantize");
            assert_false(after_skip);
            counts[step][bwd] += number(event, "group") == 0; /* HiF8: one event per expert */
        }
    }
    assert_int_equal(skips, 1);
    for (int step = 0; step < STEPS; step++) {
        const int times = step == 0 ? 2 : 1; /* the build counts as step 0 */
        assert_int_equal(refreshes[step], times * WEIGHTS);
        assert_int_equal(counts[step][0], times * WEIGHTS);
        assert_int_equal(counts[step][1], times * WEIGHTS);
    }
    /* Each weight by itself. */
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *first = json_array_get(events, i);
        if (!is(first, "event", "refresh"))
            continue;
        int same = 0;
        for (size_t j = 0; j < json_array_size(events); j++) {
            const json_t *event = json_array_get(events, j);
            same += is(event, "event", "refresh") && is(event, "fqn", text(first, "fqn"));
        }
        assert_int_equal(same, 1 + STEPS);
        i += WEIGHTS; /* some of them */
    }
}

static void trace__bf16__head_and_router_have_their_products(void **state)
{
    (void)state;
    json_t *events = trace_of(0);
    assert_head_and_router(events);
    assert_products(events, "model.layers.0.mlp.gate_proj", "bf16", HIDDEN, WIDE);
    json_decref(events);
}

static void trace__eight_bits__proves_one_gradient_and_one_quantization(void **state)
{
    (void)state;
    for (int format = 1; format < FORMATS; format++) {
        json_t *events = trace_of(format);
        assert_head_and_router(events);
        assert_no_second_gradient(events);
        assert_weights_quantized_once(events);
        json_decref(events);
    }
}

/* More tokens than the head takes at once: 1100 = 1024 + 76. */
static void trace__head_in_chunks__continues_one_chain(void **state)
{
    (void)state;
    record *r = record_create();
    train(&files, "chunks", 0, NULL,
          WORDS("trace=true", "training.train_iters=1", "lr_scheduler.warmup_steps=0",
                "training.seq_length=550", "training.micro_batch_size=2",
                "training.global_batch_size=2"),
          r);
    assert_trained(r);
    free(r);
    json_t *events = read_events("chunks");
    static const char *const stores[] = {"store", "continue"};
    static const int64_t tokens[] = {1024, 76};
    int seen = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (!is(event, "fqn", "lm_head") || !is(event, "phase", "wgrad"))
            continue;
        assert_true(seen < 2);
        assert_string_equal(text(event, "store"), stores[seen]);
        assert_shape(event, "shape", 257, tokens[seen++]);
    }
    assert_int_equal(seen, 2);
    json_decref(events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace__bf16__head_and_router_have_their_products),
        cmocka_unit_test(trace__eight_bits__proves_one_gradient_and_one_quantization),
        cmocka_unit_test(trace__head_in_chunks__continues_one_chain),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
