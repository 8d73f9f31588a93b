/* Loss, logits, residual stream, routing and gradients of tiny models against every file of
 * golden/model: FP32 at the tolerance of each file, and the BF16 and 8-bit modes, for every
 * instruction set. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "model_fixture.h"
#include "numeric/bf16.h"

enum { MAX_LAYERS = 8, MAX_TOKENS = 512, MAX_VOCAB = 512, MAX_SLOTS = 8 };

/* What one pass showed. */
typedef struct seen {
    double hidden_l2[MAX_LAYERS];
    float hidden_last[MAX_LAYERS][3];
    int32_t experts[MAX_LAYERS][MAX_TOKENS * MAX_SLOTS];
    float weights[MAX_LAYERS][MAX_TOKENS * MAX_SLOTS];
    float *logits_TV;
    int64_t vocab, top_k;
} seen;

static float element(const oct_tensor *tensor, int64_t i)
{
    return tensor->dtype == OCT_DTYPE_F32 ? ((const float *)tensor->data)[i]
                                          : oct_bf16_to_f32(((const uint16_t *)tensor->data)[i]);
}

static void see_hidden(void *arg, int64_t layer, const oct_tensor *h)
{
    seen *to = arg;
    const int64_t n = oct_tensor_numel(h), cols = oct_tensor_cols(h);
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)element(h, i) * (double)element(h, i);
    to->hidden_l2[layer] = sqrt(squares);
    for (int i = 0; i < 3; i++)
        to->hidden_last[layer][i] = element(h, n - cols + i);
}

static void see_routing(void *arg, int64_t layer, int64_t tokens, const int32_t *experts_TK,
                        const float *weights_TK)
{
    seen *to = arg;
    memcpy(to->experts[layer], experts_TK, (size_t)(tokens * to->top_k) * sizeof *experts_TK);
    memcpy(to->weights[layer], weights_TK, (size_t)(tokens * to->top_k) * sizeof *weights_TK);
}

static void see_logits(void *arg, int64_t first, const oct_tensor *logits)
{
    seen *to = arg;
    for (int64_t i = 0; i < oct_tensor_numel(logits); i++)
        to->logits_TV[first * to->vocab + i] = element(logits, i);
}

/* A golden model after its one pass. */
typedef struct outcome {
    fixture *f;
    seen *seen;
    double loss;
} outcome;

static outcome run_golden(const json_t *root, oct_isa isa, numeric_mode mode)
{
    static int32_t ids[MAX_TOKENS], targets[MAX_TOKENS];
    outcome out = {.seen = calloc(1, sizeof(seen))};
    oct_hf_config hf;
    golden_config(json_object_get(root, "config"), &hf);
    out.f = fixture_new(&hf, isa, 1, mode, 0);
    golden_weights(out.f, root);
    out.seen->vocab = hf.vocab_size;
    out.seen->top_k = hf.num_experts_per_tok;
    const oct_batch batch = {.ids = ids,
                             .targets = targets,
                             .batch = golden_int(root, "batch"),
                             .seq = golden_int(root, "seq_len")};
    assert_true(batch.batch * batch.seq <= MAX_TOKENS && hf.num_hidden_layers <= MAX_LAYERS);
    out.seen->logits_TV = calloc((size_t)(batch.batch * batch.seq * hf.vocab_size), sizeof(float));
    const int64_t counted =
        golden_tokens(root, json_string_value(json_object_get(root, "ids_name")), ids, targets);
    const oct_dsv3_observer observer = {out.seen, see_hidden, see_routing, see_logits};
    oct_dsv3_observe(out.f->model, &observer);
    out.loss = fixture_train(out.f, &batch, 1.0f / (float)counted, false) / (double)counted;
    oct_dsv3_observe(out.f->model, NULL);
    return out;
}

static void discard(outcome *out)
{
    fixture_free(out->f);
    free(out->seen->logits_TV);
    free(out->seen);
}

static const char *name_of(const json_t *root)
{
    return json_string_value(json_object_get(root, "name"));
}

/* --- inputs --- */

static void check_recipe(const json_t *root, void *arg)
{
    (void)arg;
    oct_hf_config hf;
    golden_config(json_object_get(root, "config"), &hf);
    fixture *f = fixture_new(&hf, OCT_ISA_REF, 1, mode_named("fp32"), 0);
    golden_weights(f, root);
    json_t *checks = json_object_get(root, "param_check");
    int64_t index = 0, total = 0;
    const char *fqn = NULL;
    json_t *check = NULL;
    json_object_foreach(checks, fqn, check)
    {
        const int64_t params = f->tree.param_count;
        const bool is_buffer = index >= params;
        const oct_param *param = is_buffer ? NULL : f->tree.params[index];
        const oct_buffer *buffer = is_buffer ? f->tree.buffers[index - params] : NULL;
        assert_string_equal(is_buffer ? buffer->fqn : param->fqn, fqn);
        const json_t *shape = json_object_get(check, "shape");
        assert_int_equal(json_array_size(shape), is_buffer ? 1 : param->ndim);
        for (size_t d = 0; d < json_array_size(shape); d++)
            assert_int_equal(json_integer_value(json_array_get(shape, d)),
                             is_buffer ? buffer->numel : param->shape[d]);
        if (!is_buffer)
            assert_string_equal(golden_kind(param),
                                json_string_value(json_object_get(check, "kind")));
        const float *values = is_buffer ? buffer->data : param->init;
        const int64_t n = is_buffer ? buffer->numel : oct_param_numel(param);
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += golden_value(fqn, (uint64_t)i, (uint64_t)golden_int(root, "seed"));
        assert_true(sum == golden_number(check, "sum_v"));
        const json_t *first = json_object_get(check, "first");
        for (size_t i = 0; i < json_array_size(first); i++)
            assert_true((double)values[i] ==
                        strtod(json_string_value(json_array_get(first, i)), NULL));
        total += is_buffer ? 0 : n;
        index++;
    }
    assert_int_equal(index, f->tree.param_count + f->tree.buffer_count);
    assert_int_equal(total, golden_int(root, "n_params"));
    assert_int_equal(total, oct_dsv3_size_of(&hf, 1).parameters_total);
    fixture_free(f);
}

static void build__golden_configs__have_the_names_order_and_shapes_of_hf(void **state)
{
    (void)state;
    golden_each("dsv3-golden-1", check_recipe, NULL);
}

static void check_rope(const json_t *root, void *arg)
{
    (void)arg;
    oct_hf_config hf;
    golden_config(json_object_get(root, "config"), &hf);
    float inv_freq[256];
    oct_hf_inv_freq(&hf, inv_freq);
    const json_t *golden = json_object_get(root, "inv_freq");
    assert_int_equal(json_array_size(golden), hf.qk_rope_head_dim / 2);
    for (size_t i = 0; i < json_array_size(golden); i++) {
        const double want = json_number_value(json_array_get(golden, i));
        golden_near("inv_freq", (int64_t)i, (double)inv_freq[i], want, 1e-6 * want);
    }
    golden_near("rope_factor", 0, oct_hf_rope_factor(&hf), golden_number(root, "rope_factor"),
                1e-12);
    golden_near("softmax_scale", 0, oct_hf_softmax_scale(&hf), golden_number(root, "softmax_scale"),
                1e-12);
    int32_t ids[MAX_TOKENS], targets[MAX_TOKENS];
    golden_tokens(root, json_string_value(json_object_get(root, "ids_name")), ids, targets);
    const json_t *rows = json_object_get(root, "input_ids");
    const size_t length = (size_t)golden_int(root, "seq_len");
    for (size_t i = 0; i < json_array_size(rows) * length; i++)
        assert_int_equal(ids[i], json_integer_value(
                                     json_array_get(json_array_get(rows, i / length), i % length)));
}

static void inv_freq__golden_configs__within_1e6(void **state)
{
    (void)state;
    golden_each("dsv3-golden-1", check_rope, NULL);
}

/* --- FP32 --- */

static void compare_logits(const json_t *root, const outcome *out, double bound)
{
    size_t i = 0;
    const json_t *row = NULL;
    json_array_foreach(json_object_get(json_object_get(root, "fp64"), "logits"), i, row)
    {
        const int64_t token =
            golden_int(row, "b") * golden_int(root, "seq_len") + golden_int(row, "t");
        const json_t *values = json_object_get(row, "val");
        assert_int_equal(json_array_size(values), out->seen->vocab);
        for (size_t v = 0; v < json_array_size(values); v++)
            golden_near("logit", (int64_t)v,
                        (double)out->seen->logits_TV[token * out->seen->vocab + (int64_t)v],
                        json_number_value(json_array_get(values, v)), bound);
    }
}

static void compare_hidden(const json_t *root, const outcome *out)
{
    size_t layer = 0;
    const json_t *row = NULL;
    json_array_foreach(json_object_get(json_object_get(root, "fp64"), "hidden"), layer, row)
    {
        const double l2 = golden_number(row, "l2");
        golden_near("hidden l2", (int64_t)layer, out->seen->hidden_l2[layer], l2, 1e-5 * l2);
        for (size_t i = 0; i < 3; i++)
            golden_near("hidden", (int64_t)i, (double)out->seen->hidden_last[layer][i],
                        json_number_value(json_array_get(json_object_get(row, "last"), i)), 5e-5);
    }
    assert_int_equal(layer, out->f->hf.num_hidden_layers);
}

static void compare_routing(const json_t *root, const outcome *out)
{
    const int64_t experts = out->f->hf.n_routed_experts, top_k = out->seen->top_k;
    const int64_t *counts = oct_dsv3_counts(out->f->model, NULL);
    const char *key = NULL;
    json_t *layer = NULL;
    json_object_foreach(json_object_get(json_object_get(root, "fp64"), "router"), key, layer)
    {
        const int64_t l = strtol(key, NULL, 10);
        const int64_t moe = l - out->f->hf.first_k_dense_replace;
        for (int64_t e = 0; e < experts; e++)
            assert_int_equal(
                counts[moe * experts + e],
                json_integer_value(json_array_get(json_object_get(layer, "counts"), (size_t)e)));
        const json_t *chosen = json_object_get(layer, "experts");
        const json_t *weights = json_object_get(layer, "weights");
        for (size_t t = 0; t < json_array_size(chosen); t++)
            for (size_t k = 0; k < (size_t)top_k; k++) {
                const size_t at = t * (size_t)top_k + k;
                assert_int_equal(out->seen->experts[l][at],
                                 json_integer_value(json_array_get(json_array_get(chosen, t), k)));
                golden_near("routing weight", (int64_t)at, (double)out->seen->weights[l][at],
                            json_number_value(json_array_get(json_array_get(weights, t), k)), 1e-5);
            }
    }
}

static void compare_gradients(const json_t *root, const outcome *out, double bound)
{
    const json_t *golden = json_object_get(root, "fp64");
    const json_t *grads = json_object_get(golden, "grads");
    double norm = 0.0;
    const double distance = gradient_distance(out->f, grads, &norm);
    golden_near("gradient distance", 0, distance, 0.0, bound);
    const double want = golden_number(golden, "grad_norm");
    golden_near("grad_norm", 0, norm, want, bound * want);
    for (int64_t p = 0; p < out->f->tree.param_count; p++) {
        const oct_param *param = out->f->tree.params[p];
        const json_t *g = json_object_get(grads, param->fqn);
        double l2, proj[4];
        gradient_figures(param, &l2, proj);
        const double reference = golden_number(g, "l2");
        golden_near(param->fqn, -1, l2, reference, bound * reference);
        const json_t *at = json_object_get(g, "idx");
        for (size_t i = 0; i < json_array_size(at); i++) {
            const int64_t index = json_integer_value(json_array_get(at, i));
            golden_near(param->fqn, index, (double)param->grad[index],
                        json_number_value(json_array_get(json_object_get(g, "val"), i)),
                        bound * reference);
        }
    }
}

static void check_fp32(const json_t *root, void *arg)
{
    const oct_isa isa = *(const oct_isa *)arg;
    const json_t *tolerance = json_object_get(root, "fp32_tolerance");
    outcome out = run_golden(root, isa, mode_named("fp32"));
    print_message("%s, %s: loss %.9f\n", name_of(root), oct_isa_name(isa), out.loss);
    golden_near("loss", 0, out.loss, golden_number(json_object_get(root, "fp64"), "loss"),
                golden_number(tolerance, "loss_abs"));
    compare_logits(root, &out, golden_number(tolerance, "logit_abs"));
    compare_hidden(root, &out);
    compare_routing(root, &out);
    compare_gradients(root, &out, golden_number(tolerance, "grad_rel_l2"));
    discard(&out);
}

static void forward_backward__fp32__meets_the_tolerance_of_every_file(void **state)
{
    (void)state;
    each_isa("dsv3-golden-1", check_fp32);
}

/* --- BF16 and 8-bit modes --- */

/* Are as many tokens routed to each expert as in FP64? */
static bool routed_as_fp64(const json_t *root, const outcome *out)
{
    const int64_t experts = out->f->hf.n_routed_experts;
    const int64_t *counts = oct_dsv3_counts(out->f->model, NULL);
    const char *key = NULL;
    json_t *layer = NULL;
    json_object_foreach(json_object_get(json_object_get(root, "fp64"), "router"), key, layer)
    {
        const int64_t moe = strtol(key, NULL, 10) - out->f->hf.first_k_dense_replace;
        for (int64_t e = 0; e < experts; e++)
            if (counts[moe * experts + e] !=
                json_integer_value(json_array_get(json_object_get(layer, "counts"), (size_t)e)))
                return false;
    }
    return true;
}

static void check_mode(const json_t *root, const char *name, const json_t *mode, oct_isa isa)
{
    const json_t *spread = json_object_get(mode, "spread");
    const bool wide = strstr(name, "fp32out") != NULL;
    outcome out = run_golden(root, isa, mode_named(name));
    const double want = golden_number(mode, "loss"), spread_loss = golden_number(spread, "loss");
    /* Runs with BF16 outputs have no gradients of their own in the file: how far they may be from
     * those of FP64 is known where the routing is the same. */
    const json_t *grads = json_object_get(wide ? mode : json_object_get(root, "fp64"), "grads");
    double norm = 0.0;
    const double distance = gradient_distance(out.f, grads, &norm);
    const bool comparable = wide || (json_is_true(json_object_get(mode, "same_routing_as_fp64")) &&
                                     routed_as_fp64(root, &out));
    const double spread_distance = golden_number(spread, "dist");
    const double bound =
        wide ? fmax(0.02, 3.0 * spread_distance)
             : golden_number(json_object_get(mode, "vs_fp64"), "dist") + 3.0 * spread_distance;
    print_message("%s, %s, %s: loss off by %.1e, gradients %.1e%s (%.1e)\n", name_of(root), name,
                  oct_isa_name(isa), fabs(out.loss - want), distance,
                  comparable ? "" : " other routing", bound);
    golden_near(name, 0, out.loss, want,
                wide ? fmax(5e-4, 5.0 * spread_loss) : fmax(0.02, 3.0 * spread_loss));
    if (comparable)
        golden_near("gradient distance", 0, distance, 0.0, bound);
    discard(&out);
}

static void check_modes(const json_t *root, void *arg)
{
    const oct_isa isa = *(const oct_isa *)arg;
    const char *name = NULL;
    json_t *mode = NULL;
    json_object_foreach(json_object_get(root, "modes"), name, mode)
        check_mode(root, name, mode, isa);
}

static void forward_backward__bf16_and_8_bit__accepted_in_every_file(void **state)
{
    (void)state;
    each_isa("dsv3-golden-1", check_modes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build__golden_configs__have_the_names_order_and_shapes_of_hf),
        cmocka_unit_test(inv_freq__golden_configs__within_1e6),
        cmocka_unit_test(forward_backward__fp32__meets_the_tolerance_of_every_file),
        cmocka_unit_test(forward_backward__bf16_and_8_bit__accepted_in_every_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
