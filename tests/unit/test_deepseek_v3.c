/* The model beyond its golden numbers: the frozen 16B on meta, initial weights, bit-identity under
 * recompute, threads, instruction sets and packing, folds of micro-batches, planned memory, errors.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fault.h"
#include "fsdp/shard.h"
#include "model_fixture.h"
#include "numeric/bf16.h"

/* --- counting heap calls ---------------------------------------------------------------------- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HEAP_IS_INSTRUMENTED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEAP_IS_INSTRUMENTED 1
#endif

static int64_t heap_calls;

#ifndef HEAP_IS_INSTRUMENTED
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    __atomic_add_fetch(&heap_calls, 1, __ATOMIC_RELAXED);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    __atomic_add_fetch(&heap_calls, 1, __ATOMIC_RELAXED);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    __atomic_add_fetch(&heap_calls, 1, __ATOMIC_RELAXED);
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    __atomic_add_fetch(&heap_calls, 1, __ATOMIC_RELAXED);
    return __libc_memalign(alignment, bytes);
}
#endif

/* --- a small model ---------------------------------------------------------------------------- */

enum { VOCAB = 96, ROWS = 2, LENGTH = 20, TOKENS = ROWS * LENGTH };

static const char *const small_json =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 96, \"hidden_size\": 64, "
    "\"intermediate_size\": 96, \"moe_intermediate_size\": 32, \"num_hidden_layers\": 2, "
    "\"first_k_dense_replace\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
    "\"n_routed_experts\": 8, \"n_shared_experts\": 1, \"q_lora_rank\": 32, \"kv_lora_rank\": 32, "
    "\"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 16, \"v_head_dim\": 32, "
    "\"num_experts_per_tok\": 3, \"n_group\": 2, \"topk_group\": 2, \"attention_bias\": true}";

static oct_hf_config config_with(const char *overrides)
{
    oct_hf_config hf;
    oct_err err = {0};
    if (oct_hf_config_parse(small_json, "small", overrides, &hf, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    return hf;
}

static fixture *model_with(const char *overrides, oct_isa isa, int threads, const char *mode)
{
    const oct_hf_config hf = config_with(overrides);
    fixture *f = fixture_new(&hf, isa, threads, mode_named(mode), 7);
    for (int64_t p = 0; p < f->tree.param_count; p++) /* wide enough that rounding shows */
        for (int64_t i = 0; i < oct_param_numel(f->tree.params[p]); i++)
            if (f->tree.params[p]->ndim > 1)
                f->tree.params[p]->init[i] *= 8.0f;
    fixture_refresh(f);
    return f;
}

typedef struct sample {
    int32_t ids[2048], targets[2048];
    oct_batch batch;
} sample;

static void sample_fill(sample *s, int64_t rows, int64_t length, uint64_t seed)
{
    for (int64_t i = 0; i < rows * length; i++)
        s->ids[i] = (int32_t)(golden_mix64(seed * 1000003u + (uint64_t)i) % VOCAB);
    for (int64_t i = 0; i < rows * length; i++)
        s->targets[i] = (i + 1) % length ? s->ids[i + 1] : -1;
    s->batch = (oct_batch){.ids = s->ids, .targets = s->targets, .batch = rows, .seq = length};
}

static const char *const modes[] = {"fp32", "bf16", "mxfp8_alg1_bf16out", "hif8_bf16out"};
enum { MODES = sizeof modes / sizeof *modes };

/* Loss and gradient hash of one micro-batch on a fresh model. */
typedef struct result {
    double loss;
    uint64_t gradients, counts;
} result;

static result result_of(const char *overrides, oct_isa isa, int threads, const char *mode,
                        const oct_batch *batch, bool recompute)
{
    fixture *f = model_with(overrides, isa, threads, mode);
    result out = {.loss = fixture_train(f, batch, 1.0f / 37.0f, recompute)};
    out.gradients = fixture_gradient_hash(f);
    int64_t n = 0;
    const int64_t *counts = oct_dsv3_counts(f->model, &n);
    for (int64_t i = 0; i < n; i++)
        out.counts = out.counts * 1000003u + (uint64_t)counts[i];
    fixture_free(f);
    return out;
}

static void assert_same(const result *a, const result *b)
{
    assert_true(a->loss == b->loss);
    assert_true(a->gradients == b->gradients);
    assert_true(a->counts == b->counts);
}

/* --- the frozen 16B --- */

static const char *const frozen_block =
    "{\"vocab_size\": 102400, \"hidden_size\": 2048, \"intermediate_size\": 10944, "
    "\"moe_intermediate_size\": 1408, \"num_hidden_layers\": 28, \"first_k_dense_replace\": 1, "
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 16, \"n_routed_experts\": 64, "
    "\"n_shared_experts\": 2, \"q_lora_rank\": null, \"kv_lora_rank\": 3072, "
    "\"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "
    "\"num_experts_per_tok\": 6, \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": true, "
    "\"routed_scaling_factor\": 2.5, \"max_position_embeddings\": 4096, \"use_cache\": false, "
    "\"attention_bias\": false}";

static void build__frozen_16b__all_parameters_on_meta_and_no_weights(void **state)
{
    (void)state;
    const oct_hf_config hf = config_with(frozen_block);
    oct_module_tree tree;
    oct_module_tree_init(&tree);
    oct_dsv3 *model = NULL;
    oct_err err = {0};
    assert_int_equal(oct_dsv3_build(&hf, &tree, &model, &err), OCT_OK);
    int64_t total = 0, buffers = 0, next = 0;
    for (int64_t p = 0; p < tree.param_count; p++) {
        total += oct_param_numel(tree.params[p]);
        assert_null(tree.params[p]->init);
        assert_null(tree.params[p]->value.data);
    }
    for (int64_t b = 0; b < tree.buffer_count; b++)
        buffers += tree.buffers[b]->numel;
    assert_int_equal(tree.param_count, 364);
    assert_int_equal(total, 16585005056);
    assert_int_equal(buffers, 1728);
    assert_true(tree.arena.used_bytes < 1 << 20);
    assert_int_equal(oct_dsv3_expect_16b(&hf, &tree, &err), OCT_OK);
    for (int64_t u = 0; u < oct_dsv3_unit_count(model); u++) {
        int64_t first = 0, count = 0;
        oct_dsv3_unit_params(model, u, &first, &count);
        assert_int_equal(first, next);
        assert_true(count > 0);
        next = first + count;
    }
    assert_int_equal(next, 364);
    const oct_module *experts = oct_module_find(&tree, "model.layers.27.mlp.experts");
    assert_string_equal(experts->type->name,
                        "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Experts");
    assert_int_equal(experts->child_count, 0);
    assert_string_equal(experts->params[0]->fqn, "model.layers.27.mlp.experts.gate_up_proj");
    assert_int_equal(experts->params[0]->shape[1], 2816);
    assert_int_equal(experts->params[1]->shape[2], 1408);
    assert_null(oct_module_find(&tree, "model.layers.0.mlp.experts"));
    assert_null(oct_module_find(&tree, "model.layers.0.self_attn.q_a_proj"));
    oct_module_tree_release(&tree);
}

static void size_of__frozen_16b__figures_of_the_formulas(void **state)
{
    (void)state;
    const oct_hf_config hf = config_with(frozen_block);
    const oct_dsv3_size size = oct_dsv3_size_of(&hf, 4096);
    assert_int_equal(size.parameters_total, 16585005056);
    assert_int_equal(size.parameters_active, 3037927424);
    assert_true(size.flops_per_token_megatron == 18356625408.0);
    assert_true(size.flops_per_token_torchtitan == 19787845632.0);
}

static void expect_16b__one_field_differs__named(void **state)
{
    (void)state;
    static const char *const mutations[][2] = {
        {"vocab_size", "102401"},
        {"hidden_size", "2056"},
        {"intermediate_size", "10945"},
        {"moe_intermediate_size", "1409"},
        {"num_hidden_layers", "27"},
        {"first_k_dense_replace", "2"},
        {"n_routed_experts", "63"},
        {"n_shared_experts", "1"},
        {"q_lora_rank", "1536"},
        {"kv_lora_rank", "512"},
        {"qk_nope_head_dim", "128"},
        {"qk_rope_head_dim", "32"},
        {"v_head_dim", "64"},
        {"num_experts_per_tok", "8"},
        {"n_group", "2"},
        {"norm_topk_prob", "false"},
        {"routed_scaling_factor", "1"},
        {"max_position_embeddings", "8192"},
        {"use_cache", "true"},
        {"attention_bias", "true"},
        {"tie_word_embeddings", "true"},
    };
    const oct_hf_config frozen = config_with(frozen_block);
    oct_module_tree tree;
    oct_module_tree_init(&tree);
    oct_dsv3 *model = NULL;
    oct_err err = {0};
    assert_int_equal(oct_dsv3_build(&frozen, &tree, &model, &err), OCT_OK);
    for (size_t m = 0; m < sizeof mutations / sizeof *mutations; m++) {
        json_t *block = json_loads(frozen_block, 0, NULL);
        json_object_set_new(block, mutations[m][0],
                            json_loads(mutations[m][1], JSON_DECODE_ANY, NULL));
        char *text = json_dumps(block, 0), quoted[64];
        const oct_hf_config hf = config_with(text);
        err = (oct_err){0};
        assert_int_equal(oct_dsv3_expect_16b(&hf, &tree, &err), OCT_E_CONFIG);
        snprintf(quoted, sizeof quoted, "'%s' is", mutations[m][0]);
        if (!strstr(err.msg, quoted) || !strstr(err.msg, "required"))
            fail_msg("%s: %s", mutations[m][0], err.msg);
        free(text);
        json_decref(block);
    }
    /* The fields are right but a shape of the tree is not. */
    tree.params[100]->shape[0]++;
    assert_int_equal(oct_dsv3_expect_16b(&frozen, &tree, &err), OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, tree.params[100]->fqn));
    oct_module_tree_release(&tree);
}

/* --- initial weights --- */

static void init__any_isa_threads_or_range__same_values(void **state)
{
    (void)state;
    const oct_hf_config hf = config_with("{\"pad_token_id\": 3}");
    fixture *a = fixture_new(&hf, OCT_ISA_REF, 1, mode_named("fp32"), 5);
    fixture *b = fixture_new(&hf, highest_isa(), 3, mode_named("fp32"), 5);
    fixture *c = fixture_new(&hf, OCT_ISA_REF, 1, mode_named("fp32"), 6);
    for (int64_t p = 0; p < a->tree.param_count; p++) {
        const oct_param *param = a->tree.params[p];
        const int64_t n = oct_param_numel(param);
        const size_t bytes = (size_t)n * sizeof(float);
        assert_memory_equal(param->init, b->tree.params[p]->init, bytes);
        if (param->ndim > 1)
            assert_memory_not_equal(param->init, c->tree.params[p]->init, bytes);
        float part[11];
        const int64_t first = n > 30 ? 13 : 0, count = n - first < 11 ? n - first : 11;
        oct_dsv3_init_range(a->model, &b->kernels, param, 5, first, count, part);
        assert_memory_equal(part, param->init + first, (size_t)count * sizeof(float));
    }
    fixture_free(a);
    fixture_free(b);
    fixture_free(c);
}

/* The rows of rank `rank` of `ranks`, without any other. Parameter 4 is replicated. */
static void check_owned_rows(const fixture *whole, int64_t ranks, int64_t rank, int64_t *done,
                             bool *empty)
{
    const oct_sharding sharding = {.rule = OCT_SHARD_TILE, .ranks = ranks};
    oct_module_tree tree;
    oct_module_tree_init(&tree);
    oct_dsv3 *model = NULL;
    oct_err err = {0};
    assert_int_equal(oct_dsv3_build(&whole->hf, &tree, &model, &err), OCT_OK);
    for (int64_t p = 0; p < tree.param_count; p++) {
        oct_param *param = tree.params[p];
        param->replicated = p == 4;
        const oct_shard shard = oct_shard_of_param(&sharding, param, param->replicated, rank);
        param->row_begin = shard.row_begin;
        param->rows = shard.rows;
    }
    assert_int_equal(oct_dsv3_init(model, &whole->exec, 5, &err), OCT_OK);
    for (int64_t p = 0; p < tree.param_count; p++) {
        const oct_param *param = tree.params[p];
        const int64_t begin = param->row_begin * oct_param_row_numel(param);
        const int64_t count = oct_param_own_numel(param);
        assert_non_null(param->init);
        assert_int_equal((uintptr_t)param->init % 64, 0);
        assert_memory_equal(param->init, whole->tree.params[p]->init + begin,
                            (size_t)count * sizeof(float));
        done[p] += count;
        *empty = *empty || count == 0;
    }
    oct_module_tree_release(&tree);
}

static void init__rows_of_several_ranks__those_of_one_rank(void **state)
{
    (void)state;
    static const int64_t teams[] = {1, 2, 3, 8};
    const oct_hf_config hf = config_with("{\"pad_token_id\": 130, \"vocab_size\": 500}");
    fixture *whole = fixture_new(&hf, OCT_ISA_REF, 1, mode_named("fp32"), 5);
    const int64_t params = whole->tree.param_count;
    for (size_t t = 0; t < sizeof teams / sizeof *teams; t++) {
        int64_t *done = calloc((size_t)params, sizeof *done);
        bool empty = false;
        for (int64_t rank = 0; rank < teams[t]; rank++)
            check_owned_rows(whole, teams[t], rank, done, &empty);
        for (int64_t p = 0; p < params; p++)
            assert_int_equal(done[p],
                             oct_param_numel(whole->tree.params[p]) * (p == 4 ? teams[t] : 1));
        assert_int_equal(empty, teams[t] > 1);
        free(done);
    }
    fixture_free(whole);
}

static void init__no_memory__names_the_parameter_and_leaves_none(void **state)
{
    (void)state;
    const oct_hf_config hf = config_with("{}");
    oct_module_tree tree;
    oct_module_tree_init(&tree);
    oct_dsv3 *model = NULL;
    oct_err err = {0};
    assert_int_equal(oct_dsv3_build(&hf, &tree, &model, &err), OCT_OK);
    oct_kernels kernels;
    oct_kernels_init(&kernels, OCT_ISA_REF);
    const oct_exec exec = {.kernels = &kernels, .threads = 1};
    assert_int_equal(oct_fault_arm("init.memory", 3, OCT_FAULT_FAIL, &err), OCT_OK);
    assert_int_equal(oct_dsv3_init(model, &exec, 5, &err), OCT_E_NOMEM);
    assert_non_null(strstr(err.msg, tree.params[2]->fqn));
    for (int64_t p = 0; p < tree.param_count; p++)
        assert_null(tree.params[p]->init);
    oct_fault_disarm_all();
    oct_module_tree_release(&tree);
}

static void init__each_kind__as_hf(void **state)
{
    (void)state;
    const oct_hf_config hf = config_with("{\"pad_token_id\": 3, \"vocab_size\": 2000}");
    fixture *f = fixture_new(&hf, OCT_ISA_REF, 1, mode_named("fp32"), 5);
    for (int64_t p = 0; p < f->tree.param_count; p++) {
        const oct_param *param = f->tree.params[p];
        const int64_t n = oct_param_numel(param);
        double sum = 0.0, squares = 0.0, fourth = 0.0;
        for (int64_t i = 0; i < n; i++) {
            const double x = (double)param->init[i] / 0.02;
            sum += x;
            squares += x * x;
            fourth += x * x * x * x;
        }
        if (param->ndim == 1) {
            const float want = strstr(param->fqn, "norm.weight") ? 1.0f : 0.0f;
            for (int64_t i = 0; i < n; i++)
                assert_true(param->init[i] == want);
            continue;
        }
        const double mean = sum / (double)n, noise = 5.0 / sqrt((double)n);
        assert_true(fabs(mean) < noise);
        assert_true(fabs(squares / (double)n - 1.0) < 2.0 * noise);
        assert_true(fabs(fourth / (double)n - 3.0) < 12.0 * noise);
    }
    for (int64_t i = 0; i < hf.hidden_size; i++)
        assert_true(f->tree.params[0]->init[3 * hf.hidden_size + i] == 0.0f);
    for (int64_t i = 0; i < f->tree.buffers[0]->numel; i++)
        assert_true(f->tree.buffers[0]->data[i] == 0.0f);
    fixture_refresh(f);
    sample s;
    sample_fill(&s, ROWS, LENGTH, 1);
    const double loss = fixture_train(f, &s.batch, 1.0f, false) / (double)(ROWS * (LENGTH - 1));
    assert_true(fabs(loss - (log(2000.0) + 64.0 * 0.0004 / 2.0)) < 0.1);
    fixture_free(f);
}

/* --- one micro-batch, computed in several ways --- */

static void forward_backward__recompute__same_bits_and_counts(void **state)
{
    (void)state;
    sample s;
    sample_fill(&s, ROWS, LENGTH, 1);
    for (int m = 0; m < MODES; m++) {
        const result kept = result_of(NULL, highest_isa(), 1, modes[m], &s.batch, false);
        const result replayed = result_of(NULL, highest_isa(), 1, modes[m], &s.batch, true);
        assert_same(&kept, &replayed);
    }
}

static void forward_backward__two_threads__same_bits(void **state)
{
    (void)state;
    sample s;
    sample_fill(&s, ROWS, LENGTH, 1);
    for (int m = 0; m < MODES; m++) {
        const result one = result_of(NULL, highest_isa(), 1, modes[m], &s.batch, false);
        const result two = result_of(NULL, highest_isa(), 2, modes[m], &s.batch, false);
        assert_same(&one, &two);
    }
}

static void forward_backward__every_instruction_set__same_bits(void **state)
{
    (void)state;
    static const char *const shapes[] = {
        NULL, "{\"tie_word_embeddings\": true, \"rope_interleave\": false, \"q_lora_rank\": null}",
        "{\"hidden_size\": 72, \"kv_lora_rank\": 40, \"qk_nope_head_dim\": 12, \"v_head_dim\": 20, "
        "\"moe_intermediate_size\": 36, \"intermediate_size\": 84}"};
    sample s;
    sample_fill(&s, ROWS, 33, 1);
    for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++)
        for (int m = 0; m < MODES; m++) {
            const result ref = result_of(shapes[c], OCT_ISA_REF, 1, modes[m], &s.batch, false);
            for (int isa = OCT_ISA_AVX2; isa <= (int)highest_isa(); isa++) {
                const result fast =
                    result_of(shapes[c], (oct_isa)isa, 1, modes[m], &s.batch, false);
                assert_same(&ref, &fast);
            }
        }
}

static void forward_backward__rows_packed_by_cu_seqlens__same_bits(void **state)
{
    (void)state;
    sample s;
    sample_fill(&s, ROWS, LENGTH, 1);
    static const int32_t bounds[] = {0, LENGTH, TOKENS};
    oct_batch packed = s.batch;
    packed.batch = 1;
    packed.seq = TOKENS;
    packed.cu_seqlens = bounds;
    packed.sequences = 2;
    for (int m = 0; m < MODES; m++) {
        const result rows = result_of(NULL, highest_isa(), 1, modes[m], &s.batch, false);
        const result flat = result_of(NULL, highest_isa(), 1, modes[m], &packed, false);
        assert_same(&rows, &flat);
    }
    packed.cu_seqlens = NULL; /* one long sequence is another thing */
    const result rows = result_of(NULL, highest_isa(), 1, "fp32", &s.batch, false);
    const result joined = result_of(NULL, highest_isa(), 1, "fp32", &packed, false);
    assert_true(rows.loss != joined.loss);
}

static void forward_backward__uneven_sequences__losses_of_separate_passes(void **state)
{
    (void)state;
    sample s;
    sample_fill(&s, 1, 29, 3);
    s.targets[4] = s.targets[15] = -1;
    static const int32_t bounds[] = {0, 5, 16, 29};
    oct_batch packed = s.batch;
    packed.cu_seqlens = bounds;
    packed.sequences = 3;
    fixture *f = model_with(NULL, highest_isa(), 1, "bf16");
    double together = 0.0, apart = 0.0;
    fixture_ok(f, oct_dsv3_loss(f->model, &f->run, &packed, &together, &f->err));
    for (int i = 0; i < 3; i++) {
        double loss = 0.0;
        const oct_batch one = {.ids = s.ids + bounds[i],
                               .targets = s.targets + bounds[i],
                               .batch = 1,
                               .seq = bounds[i + 1] - bounds[i]};
        fixture_ok(f, oct_dsv3_loss(f->model, &f->run, &one, &loss, &f->err));
        apart += loss;
    }
    assert_true(fabs(together - apart) <= 1e-12 * together);
    fixture_free(f);
}

/* --- gradients over micro-batches --- */

static void check_fold(const char *overrides, const char *mode, oct_dtype reduce)
{
    sample a, b;
    sample_fill(&a, ROWS, LENGTH, 1);
    sample_fill(&b, ROWS, LENGTH, 2);
    fixture *f = model_with(overrides, highest_isa(), 1, mode);
    f->run.reduce_dtype = reduce;
    int64_t total = 0;
    for (int64_t p = 0; p < f->tree.param_count; p++)
        total += oct_param_numel(f->tree.params[p]);
    float *first = malloc((size_t)total * sizeof *first),
          *second = malloc((size_t)total * sizeof *first);
    float *kept[] = {first, second};
    const oct_batch *batches[] = {&a.batch, &b.batch};
    for (int i = 0; i < 2; i++) {
        fixture_start_step(f);
        fixture_train(f, batches[i], 1.0f / 37.0f, false);
        float *to = kept[i];
        for (int64_t p = 0; p < f->tree.param_count; p++) {
            const int64_t n = oct_param_numel(f->tree.params[p]);
            memcpy(to, f->tree.params[p]->grad, (size_t)n * sizeof *to);
            to += n;
        }
    }
    fixture_start_step(f);
    fixture_train(f, &a.batch, 1.0f / 37.0f, false);
    fixture_train(f, &b.batch, 1.0f / 37.0f, true);
    int64_t at = 0;
    for (int64_t p = 0; p < f->tree.param_count; p++)
        for (int64_t i = 0; i < oct_param_numel(f->tree.params[p]); i++, at++) {
            if (reduce == OCT_DTYPE_BF16)
                assert_true(first[at] == oct_bf16_round(first[at]));
            if (f->tree.params[p]->grad[i] != first[at] + second[at])
                fail_msg("%s[%lld]: %a is not %a + %a", f->tree.params[p]->fqn, (long long)i,
                         (double)f->tree.params[p]->grad[i], (double)first[at], (double)second[at]);
        }
    free(first);
    free(second);
    fixture_free(f);
}

static void forward_backward__two_micro_batches__sum_of_their_finished_gradients(void **state)
{
    (void)state;
    check_fold(NULL, "fp32", OCT_DTYPE_F32);
    check_fold("{\"tie_word_embeddings\": true}", "bf16", OCT_DTYPE_F32);
    check_fold("{\"tie_word_embeddings\": true}", "bf16", OCT_DTYPE_BF16);
    check_fold(NULL, "bf16", OCT_DTYPE_BF16);
    check_fold(NULL, "mxfp8_alg1_bf16out", OCT_DTYPE_F32);
    check_fold(NULL, "hif8_bf16out", OCT_DTYPE_BF16);
}

typedef struct head_seen {
    float *hidden_TH, *logits_TV;
} head_seen;

static void see_hidden(void *arg, int64_t layer, const oct_tensor *h)
{
    head_seen *seen = arg;
    if (layer == 1)
        memcpy(seen->hidden_TH, h->data, oct_tensor_bytes(h));
}

static void see_logits(void *arg, int64_t first, const oct_tensor *logits)
{
    head_seen *seen = arg;
    assert_true(oct_tensor_rows(logits) <= OCT_DSV3_HEAD_CHUNK); /* no logits of all tokens */
    memcpy(seen->logits_TV + first * VOCAB, logits->data, oct_tensor_bytes(logits));
}

static void head__more_tokens_than_a_chunk__gradient_is_one_chain(void **state)
{
    (void)state;
    enum { LONG = OCT_DSV3_HEAD_CHUNK + 45, H = 64 };
    sample s;
    sample_fill(&s, 1, LONG, 4);
    fixture *f = model_with(NULL, highest_isa(), 1, "fp32");
    head_seen seen = {.hidden_TH = malloc(LONG * H * sizeof(float)),
                      .logits_TV = malloc(LONG * VOCAB * sizeof(float))};
    const oct_dsv3_observer observer = {.arg = &seen, .hidden = see_hidden, .logits = see_logits};
    oct_dsv3_observe(f->model, &observer);
    fixture_train(f, &s.batch, 0.01f, false);

    const oct_param *norm = f->tree.params[f->tree.param_count - 2];
    const oct_param *head = f->tree.params[f->tree.param_count - 1];
    assert_string_equal(head->fqn, "lm_head.weight");
    static float normed[LONG * H], rstd[LONG], loss[LONG], dw[VOCAB * H];
    const oct_tensor h = oct_tensor_2d(seen.hidden_TH, OCT_DTYPE_F32, LONG, H);
    const oct_tensor x = oct_tensor_2d(normed, OCT_DTYPE_F32, LONG, H);
    const oct_tensor logits = oct_tensor_2d(seen.logits_TV, OCT_DTYPE_F32, LONG, VOCAB);
    fixture_ok(f, oct_rmsnorm(&f->exec, &h, &norm->value, 1e-6f, &x, rstd, &f->err));
    fixture_ok(f, oct_cross_entropy(&f->exec, &logits, s.targets, 0.01f, loss, &f->err));
    const oct_matrix g = oct_matrix_of(&logits), right = oct_matrix_of(&x);
    const oct_gemm_out out = {.data = dw, .ld = H, .dtype = OCT_DTYPE_F32};
    fixture_ok(f, oct_gemm(&f->exec, &g, &right, OCT_LAYOUT_TN, &out, &f->err));
    assert_memory_equal(dw, head->grad, sizeof dw);
    free(seen.hidden_TH);
    free(seen.logits_TV);
    fixture_free(f);
}

static void embedding__padding_token__gets_no_gradient(void **state)
{
    (void)state;
    sample s;
    sample_fill(&s, ROWS, LENGTH, 1);
    fixture *f = model_with("{\"pad_token_id\": 9}", highest_isa(), 1, "fp32");
    s.ids[3] = s.ids[11] = 9;
    fixture_train(f, &s.batch, 1.0f, false);
    const float *grad = f->tree.params[0]->grad;
    double other = 0.0;
    for (int64_t i = 0; i < f->hf.hidden_size; i++) {
        assert_true(grad[9 * f->hf.hidden_size + i] == 0.0f);
        other += fabs((double)grad[s.ids[0] * f->hf.hidden_size + i]);
    }
    assert_true(other > 0.0);
    fixture_free(f);
}

/* --- evaluation --- */

static void loss__same_batch__loss_of_the_training_pass_and_nothing_else(void **state)
{
    (void)state;
    sample s;
    sample_fill(&s, ROWS, LENGTH, 1);
    for (int m = 0; m < MODES; m++) {
        fixture *f = model_with(NULL, highest_isa(), 1, modes[m]);
        double loss = 0.0;
        const uint64_t before = fixture_gradient_hash(f);
        fixture_ok(f, oct_dsv3_loss(f->model, &f->run, &s.batch, &loss, &f->err));
        assert_int_equal(f->step.used_bytes, 0);
        assert_true(before == fixture_gradient_hash(f));
        int64_t n = 0, counted = 0;
        const int64_t *counts = oct_dsv3_counts(f->model, &n);
        for (int64_t i = 0; i < n; i++)
            counted += counts[i];
        assert_int_equal(counted, 0);
        assert_true(loss == fixture_train(f, &s.batch, 1.0f, false));
        for (int64_t i = 0; i < n; i++)
            counted += counts[i];
        assert_int_equal(counted, TOKENS * f->hf.num_experts_per_tok);
        oct_dsv3_counts_reset(f->model);
        assert_int_equal(counts[0] + counts[1] + counts[2], 0);
        fixture_free(f);
    }
}

static void next_logits__prefix__last_row_of_the_training_logits(void **state)
{
    (void)state;
    enum { PREFIX = 13 };
    sample s;
    sample_fill(&s, 1, PREFIX, 1);
    static float hidden[PREFIX * 64], logits[PREFIX * VOCAB], next[VOCAB];
    head_seen seen = {.hidden_TH = hidden, .logits_TV = logits};
    const oct_dsv3_observer observer = {.arg = &seen, .hidden = see_hidden, .logits = see_logits};
    fixture *f = model_with(NULL, highest_isa(), 1, "fp32");
    oct_dsv3_observe(f->model, &observer);
    fixture_train(f, &s.batch, 1.0f, false);
    oct_dsv3_observe(f->model, NULL);
    fixture_ok(f, oct_dsv3_next_logits(f->model, &f->run, s.ids, PREFIX, next, &f->err));
    assert_memory_equal(next, logits + (PREFIX - 1) * VOCAB, sizeof next);
    fixture_free(f);
}

/* --- load balancing --- */

static void update_bias__uneven_counts__one_rate_towards_the_mean(void **state)
{
    (void)state;
    const oct_hf_config hf = config_with("{\"num_hidden_layers\": 3}");
    fixture *f = fixture_new(&hf, OCT_ISA_REF, 1, mode_named("fp32"), 5);
    int64_t n = 0;
    int64_t *counts = oct_dsv3_counts(f->model, &n);
    assert_int_equal(n, 16);
    static const int64_t given[16] = {5, 3, 4, 4, 0, 8, 4, 4, 1, 1, 1, 1, 1, 1, 1, 0};
    memcpy(counts, given, sizeof given);
    oct_dsv3_update_bias(f->model, 0.25);
    static const float first[8] = {-0.25f, 0.25f, 0, 0, 0.25f, -0.25f, 0, 0};
    for (int e = 0; e < 8; e++) {
        assert_true(f->tree.buffers[0]->data[e] == first[e]);
        assert_true(f->tree.buffers[1]->data[e] == (e < 7 ? -0.25f : 0.25f)); /* mean 7/8 */
    }
    fixture_free(f);
}

/* --- units, failures, memory --- */

typedef struct unit_log {
    char text[1024];
    int calls, fail_at;
} unit_log;

static oct_status on_unit(void *arg, int64_t unit, oct_unit_event event, oct_err *err)
{
    unit_log *log = arg;
    static const char *const names[] = {"+", "-", "(", ")"};
    const size_t length = strlen(log->text);
    snprintf(log->text + length, sizeof log->text - length, "%s%lld ", names[event],
             (long long)unit);
    return ++log->calls == log->fail_at ? OCT_FAIL(err, OCT_E_COMM, "unit %lld", (long long)unit)
                                        : OCT_OK;
}

static void forward_backward__hooks__each_unit_opened_and_closed_in_order(void **state)
{
    (void)state;
    sample s;
    sample_fill(&s, ROWS, LENGTH, 1);
    for (int tied = 0; tied < 2; tied++) {
        fixture *f =
            model_with(tied ? "{\"tie_word_embeddings\": true}" : NULL, highest_isa(), 1, "fp32");
        unit_log log = {0};
        const oct_unit_hooks hooks = {.on_unit = on_unit, .arg = &log};
        f->run.hooks = &hooks;
        fixture_train(f, &s.batch, 1.0f, true);
        assert_string_equal(log.text, tied ? "+0 +1 -1 +2 -2 +3 -3 -0 (0 (3 )3 (2 )2 (1 )1 )0 "
                                           : "+0 -0 +1 -1 +2 -2 +3 -3 (3 )3 (2 )2 (1 )1 (0 )0 ");
        fixture_free(f);
    }
}

static void forward_backward__failure_anywhere__leaks_nothing_and_can_be_repeated(void **state)
{
    (void)state;
    sample s;
    sample_fill(&s, ROWS, LENGTH, 1);
    fixture *f = model_with(NULL, highest_isa(), 1, "mxfp8_alg1_bf16out");
    const double loss = fixture_train(f, &s.batch, 1.0f, false);
    const uint64_t gradients = fixture_gradient_hash(f);
    unit_log log = {0};
    const oct_unit_hooks hooks = {.on_unit = on_unit, .arg = &log};
    f->run.hooks = &hooks;
    for (int at = 1; at <= 16; at++) {
        log = (unit_log){.fail_at = at};
        double ignored = 0.0;
        fixture_start_step(f);
        assert_int_equal(oct_dsv3_forward_backward(f->model, &f->run, &s.batch, 1.0f, at % 2 == 0,
                                                   &ignored, &f->err),
                         OCT_E_COMM);
        assert_int_equal(f->scratch.used_bytes, 0);
    }
    f->run.hooks = NULL;
    fixture_start_step(f);
    assert_true(loss == fixture_train(f, &s.batch, 1.0f, false));
    assert_true(gradients == fixture_gradient_hash(f));
    fixture_free(f);
}

/* Four steps on changing data; the heap calls after the first one. */
static int64_t calls_after_first_step(const char *mode, bool recompute, int micro_batches)
{
    fixture *f = model_with(NULL, highest_isa(), 1, mode);
    int64_t after_first = 0;
    for (int step = 0; step < 4; step++) {
        sample s; /* another routing each time */
        double loss = 0.0;
        sample_fill(&s, 16, 40, 10 + (uint64_t)step); /* more than one block of an arena */
        fixture_start_step(f);
        for (int micro = 0; micro < micro_batches; micro++)
            fixture_train(f, &s.batch, 1.0f, recompute);
        fixture_ok(f, oct_dsv3_loss(f->model, &f->run, &s.batch, &loss, &f->err));
        oct_arena_reset(&f->step);
        if (step == 0)
            after_first = heap_calls;
    }
    const int64_t more = heap_calls - after_first;
    fixture_free(f);
    return more;
}

static void forward_backward__after_the_first_step__no_heap_call(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++)
        for (int recompute = 0; recompute < 2; recompute++)
            for (int micro = 1; micro <= 2; micro++) {
                const int64_t calls = calls_after_first_step(modes[m], recompute, micro);
                if (calls)
                    fail_msg("%s, recompute %d, %d micro-batches: %lld heap calls", modes[m],
                             recompute, micro, (long long)calls);
            }
#ifndef HEAP_IS_INSTRUMENTED
    assert_true(heap_calls > 0);
#endif
}

static void forward_backward__wrong_batches__refused_by_name(void **state)
{
    (void)state;
    fixture *f = model_with(NULL, OCT_ISA_REF, 1, "fp32");
    sample s;
    double loss = 0.0;
    static const int32_t unordered[] = {0, 9, 9, TOKENS}, short_end[] = {0, 9, 39};
    for (int c = 0; c < 8; c++) {
        sample_fill(&s, ROWS, LENGTH, 1);
        const char *want = "";
        oct_status status = OCT_E_DATA;
        f->run.training = true;
        switch (c) {
        case 0:
            s.ids[LENGTH + 2] = VOCAB;
            want = "token id 96 at row 1, position 2";
            break;
        case 1:
            s.ids[5] = -1;
            want = "token id -1 at row 0, position 5";
            break;
        case 2:
            s.targets[7] = 1000;
            want = "target 1000 at row 0, position 7";
            break;
        case 3:
            s.batch.cu_seqlens = unordered;
            s.batch.sequences = 3;
            want = "cu_seqlens[2] is 9";
            status = OCT_E_SHAPE;
            break;
        case 4:
            s.batch.cu_seqlens = short_end;
            s.batch.sequences = 2;
            want = "cu_seqlens is 0 .. 39, required 0 .. 40";
            status = OCT_E_SHAPE;
            break;
        case 5:
            s.batch.batch = 0;
            want = "0 x 20 tokens";
            status = OCT_E_SHAPE;
            break;
        case 6:
            s.batch.targets = NULL;
            want = "no targets";
            status = OCT_E_API;
            break;
        default:
            f->run.training = false;
            want = "run->training is false";
            status = OCT_E_API;
            break;
        }
        f->err = (oct_err){0};
        assert_int_equal(
            oct_dsv3_forward_backward(f->model, &f->run, &s.batch, 1.0f, false, &loss, &f->err),
            status);
        if (!strstr(f->err.msg, want))
            fail_msg("'%s' is not in '%s'", want, f->err.msg);
    }
    fixture_free(f);
}

/* --- latent norms --- */

static oct_param *param_named(fixture *f, const char *fqn)
{
    for (int64_t p = 0; p < f->tree.param_count; p++)
        if (!strcmp(f->tree.params[p]->fqn, fqn))
            return f->tree.params[p];
    fail_msg("no parameter %s", fqn);
    return NULL;
}

/* Gradient of `up`, with the first `rows` rows of `down` four times as large if `scaled`. */
static float *gradient_behind_norm(const char *down, const char *up, int64_t rows, bool scaled,
                                   int64_t *count)
{
    sample s;
    sample_fill(&s, ROWS, LENGTH, 3);
    fixture *f = model_with("{\"rms_norm_eps\": 0.5}", highest_isa(), 1, "fp32");
    const oct_param *weight = param_named(f, down);
    for (int64_t i = 0; scaled && i < rows * oct_param_cols(weight); i++)
        weight->init[i] *= 4.0f;
    fixture_refresh(f);
    fixture_train(f, &s.batch, 1.0f / 37.0f, false);
    const oct_param *behind = param_named(f, up);
    *count = oct_param_numel(behind);
    float *copy = malloc((size_t)*count * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, behind->grad, (size_t)*count * sizeof *copy);
    fixture_free(f);
    return copy;
}

/* The norms of the latents have an epsilon of 1e-6 whatever rms_norm_eps is: what stands behind
 * them does not feel the size of what comes in. */
static void latent_norms__large_rms_norm_eps__do_not_use_it(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"model.layers.0.self_attn.q_a_proj.weight", "model.layers.0.self_attn.q_b_proj.weight"},
        {"model.layers.1.self_attn.kv_a_proj_with_mqa.weight",
         "model.layers.1.self_attn.kv_b_proj.weight"},
    };
    for (int i = 0; i < 2; i++) {
        int64_t count = 0;
        float *plain = gradient_behind_norm(pairs[i][0], pairs[i][1], 32, false, &count);
        float *scaled = gradient_behind_norm(pairs[i][0], pairs[i][1], 32, true, &count);
        double size = 0.0, apart = 0.0;
        for (int64_t k = 0; k < count; k++) {
            size += fabs((double)plain[k]);
            apart += fabs((double)plain[k] - (double)scaled[k]);
        }
        if (!(size > 0.0 && apart < 1e-3 * size))
            fail_msg("%s: gradients are %g apart of %g", pairs[i][1], apart, size);
        free(plain);
        free(scaled);
    }
}

/* Largest magnitude of what each layer adds to the residual. */
typedef struct residual {
    float before[TOKENS * 64];
    double largest;
} residual;

static void follow_residual(void *arg, int64_t layer, const oct_tensor *h)
{
    residual *r = arg;
    const float *now = h->data;
    assert_int_equal(oct_tensor_numel(h), TOKENS * 64);
    for (int64_t i = 0; i < TOKENS * 64; i++) {
        if (layer > 0)
            r->largest = fmax(r->largest, fabs((double)now[i] - (double)r->before[i]));
        r->before[i] = now[i];
    }
}

/* All other norms have it: with a huge one nothing comes through them, and every token is as likely
 * as any other. */
static void norms__huge_rms_norm_eps__silence_the_model(void **state)
{
    (void)state;
    residual seen = {.largest = 0.0};
    const oct_dsv3_observer observer = {.arg = &seen, .hidden = follow_residual};
    sample s;
    sample_fill(&s, ROWS, LENGTH, 3);
    fixture *f = model_with("{\"rms_norm_eps\": 1e24}", highest_isa(), 1, "fp32");
    oct_dsv3_observe(f->model, &observer);
    const double loss = fixture_train(f, &s.batch, 1.0f / 37.0f, false) / (ROWS * (LENGTH - 1));
    assert_true(seen.largest < 1e-4);
    assert_true(fabs(loss - log(VOCAB)) < 1e-4);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build__frozen_16b__all_parameters_on_meta_and_no_weights),
        cmocka_unit_test(size_of__frozen_16b__figures_of_the_formulas),
        cmocka_unit_test(expect_16b__one_field_differs__named),
        cmocka_unit_test(init__any_isa_threads_or_range__same_values),
        cmocka_unit_test(init__rows_of_several_ranks__those_of_one_rank),
        cmocka_unit_test(init__no_memory__names_the_parameter_and_leaves_none),
        cmocka_unit_test(init__each_kind__as_hf),
        cmocka_unit_test(forward_backward__recompute__same_bits_and_counts),
        cmocka_unit_test(forward_backward__two_threads__same_bits),
        cmocka_unit_test(forward_backward__every_instruction_set__same_bits),
        cmocka_unit_test(forward_backward__rows_packed_by_cu_seqlens__same_bits),
        cmocka_unit_test(forward_backward__uneven_sequences__losses_of_separate_passes),
        cmocka_unit_test(forward_backward__two_micro_batches__sum_of_their_finished_gradients),
        cmocka_unit_test(head__more_tokens_than_a_chunk__gradient_is_one_chain),
        cmocka_unit_test(embedding__padding_token__gets_no_gradient),
        cmocka_unit_test(loss__same_batch__loss_of_the_training_pass_and_nothing_else),
        cmocka_unit_test(next_logits__prefix__last_row_of_the_training_logits),
        cmocka_unit_test(update_bias__uneven_counts__one_rate_towards_the_mean),
        cmocka_unit_test(forward_backward__hooks__each_unit_opened_and_closed_in_order),
        cmocka_unit_test(forward_backward__failure_anywhere__leaks_nothing_and_can_be_repeated),
        cmocka_unit_test(forward_backward__after_the_first_step__no_heap_call),
        cmocka_unit_test(forward_backward__wrong_batches__refused_by_name),
        cmocka_unit_test(latent_norms__large_rms_norm_eps__do_not_use_it),
        cmocka_unit_test(norms__huge_rms_norm_eps__silence_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
