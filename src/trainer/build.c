#include "trainer/build.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/size.h"
#include "low_precision/modules/linear.h"
#include "model/deepseek_v3/low_precision_experts.h"

/* What `model._target_` may name. */
static const char *const model_targets[] = {
    "hyper_models._transformers.HyperAutoModelForCausalLM.from_hf_config",
    "octet.from_hf_config",
};

/* What plan_overrides may name. */
static const oct_plan_factory factories[] = {
    {OCT_REPLACE_LOW_PRECISION_LINEAR, oct_replace_low_precision_linear, &oct_linear_type},
    {OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS, oct_replace_dsv3_low_precision_experts,
     &oct_dsv3_experts_type},
};
static const oct_module_type *const types[] = {&oct_linear_type, &oct_dsv3_experts_type};
static const oct_plan_registry registry = {
    .factory_count = sizeof factories / sizeof factories[0],
    .factories = factories,
    .type_count = sizeof types / sizeof types[0],
    .types = types,
};

static oct_dtype dtype_of_name(const char *name)
{
    return strcmp(name, "float32") == 0 ? OCT_DTYPE_F32 : OCT_DTYPE_BF16;
}

static oct_status stage_policy(oct_build *build, oct_err *err)
{
    const oct_config *config = build->config;
    const oct_torchtitan *job = config->torchtitan;
    oct_isa isa = OCT_ISA_REF;
    if (job && !job->expanded)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot build: the converters of the job are no rules yet, "
                        "oct_converters_expand is required");
    OCT_TRY(oct_isa_choose(&isa, err));
    oct_kernels_init(&build->kernels, isa);
    build->exec = (oct_exec){
        .kernels = &build->kernels,
        .threads = config->training.threads ? (int)config->training.threads : oct_cpu_count(),
        .scratch = &build->scratch,
    };
    build->act_dtype = dtype_of_name(config->model.torch_dtype);
    build->reduce_dtype = dtype_of_name(config->training.reduce_dtype);
    OCT_TRY(oct_low_precision_policy_make(config->low_precision.enabled,
                                          config->low_precision.format,
                                          config->low_precision.scaling, &build->policy, err));
    return oct_low_precision_gate(&build->policy, &build->kernels, config->device, err);
}

static oct_status stage_hf_config(oct_build *build, oct_err *err)
{
    const oct_config *config = build->config;
    bool known = false;
    for (size_t i = 0; i < sizeof model_targets / sizeof model_targets[0]; i++)
        known = known || strcmp(config->model.target, model_targets[i]) == 0;
    if (!known)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "unknown model factory: found '%s', '%s' is required "
                        "(model._target_)",
                        config->model.target, model_targets[0]);
    return oct_hf_config_load(config->model.config_name_or_path,
                              config->model.config_overrides_json, &build->persist, &build->hf,
                              err);
}

static oct_status stage_meta(oct_build *build, oct_err *err)
{
    OCT_TRY(oct_dsv3_build(&build->hf, &build->tree, &build->model, err));
    if (oct_fault("meta.kernel")) /* as code that computes too early */
        OCT_TRY(oct_dsv3_init(build->model, &build->exec, (uint64_t)build->config->seed, err));
    if (strcmp(build->config->model.expect, "deepseek_v3_16b") == 0)
        OCT_TRY(oct_dsv3_expect_16b(&build->hf, &build->tree, err));
    return OCT_OK;
}

static oct_status stage_plan(oct_build *build, oct_err *err)
{
    const oct_config *config = build->config;
    const int64_t count = build->policy.enabled ? config->plan_override_count : 0;
    if (build->policy.enabled && count == 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "low precision is enabled without a rule: plan_overrides is empty, at "
                        "least one rule is required (plan_overrides, low_precision.enabled)");
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&build->persist, count, sizeof(oct_plan_rule), &memory, err));
    oct_plan_rule *rules = memory;
    for (int64_t i = 0; i < count; i++) {
        const oct_plan_override *entry = &config->plan_overrides[i];
        rules[i] = (oct_plan_rule){
            .pattern_count = entry->match.count,
            .patterns = entry->match.items,
            .module_type = entry->module_type,
            .exact_type = entry->exact_type,
            .target = entry->target,
            .where = entry->where,
        };
    }
    return oct_plan_compile(&build->tree, rules, count, &registry, &build->persist, &build->plan,
                            err);
}

int oct_build_rank(const oct_build *build)
{
    return build->comm ? oct_comm_rank(build->comm) : 0;
}

int oct_build_ranks(const oct_build *build)
{
    return build->comm ? oct_comm_size(build->comm) : 1;
}

oct_sharding oct_build_sharding(const oct_config *config, int64_t ranks)
{
    return (oct_sharding){
        .rule = strcmp(config->fsdp.shard, "even") == 0 ? OCT_SHARD_EVEN : OCT_SHARD_TILE,
        .ranks = ranks,
        .fallback_to_unsharded = config->fsdp.fallback_to_unsharded,
    };
}

oct_status oct_build_shard_decide(const oct_build *build, const oct_sharding *sharding,
                                  const oct_param *param, bool low_precision, bool *replicated,
                                  oct_err *err)
{
    oct_shard_law law = {0};
    if (low_precision)
        law = (oct_shard_law){.rows_legal = build->policy.format->shard_rows_legal,
                              .required = build->policy.format->shard_rule};
    return oct_shard_decide(sharding, param, low_precision ? &law : NULL, replicated, err);
}

/* Will the plan turn this parameter into an 8-bit weight? */
static bool becomes_low_precision(const oct_build *build, const oct_param *param)
{
    int64_t count = 0;
    const oct_plan_target *targets = oct_plan_targets(build->plan, &count);
    for (int64_t t = 0; t < count; t++)
        for (int i = 0; i < targets[t].module->param_count; i++)
            if (targets[t].module->params[i] == param && param->ndim >= 2)
                return true;
    return false;
}

static oct_status stage_cut(oct_build *build, oct_err *err)
{
    const oct_sharding sharding = oct_build_sharding(build->config, oct_build_ranks(build));
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        oct_param *param = build->tree.params[p];
        OCT_TRY(oct_build_shard_decide(build, &sharding, param, becomes_low_precision(build, param),
                                       &param->replicated, err));
        const oct_shard shard =
            oct_shard_of_param(&sharding, param, param->replicated, oct_build_rank(build));
        param->row_begin = shard.row_begin;
        param->rows = shard.rows;
    }
    return OCT_OK;
}

static oct_status stage_materialise(oct_build *build, oct_err *err)
{
    return oct_dsv3_init(build->model, &build->exec, (uint64_t)build->config->seed, err);
}

static oct_status stage_replace(oct_build *build, oct_err *err)
{
    return oct_plan_apply(build->plan, &build->tree, &build->policy, &build->trace, err);
}

bool oct_build_packs_at_use(const oct_build *build, int64_t ranks)
{
    return !build->keep_panels && (ranks > 1 || build->config->gradient_accumulation_steps == 1);
}

static oct_status stage_finalize(oct_build *build, oct_err *err)
{
    build->weights.pack_at_use = oct_build_packs_at_use(build, oct_build_ranks(build));
    return oct_quantized_weights_finalize(&build->weights, build->plan, &build->policy,
                                          build->act_dtype, &build->exec, build->comm,
                                          &build->trace, err);
}

/* "model.embed_tokens", "model.layers.3", "lm_head". */
static oct_status unit_name(oct_build *build, int64_t unit, const char **name, oct_err *err)
{
    enum { NAME_BYTES = 40 };
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(&build->persist, NAME_BYTES, &memory, err));
    const int64_t layers = build->hf.num_hidden_layers;
    if (unit == 0 || unit > layers)
        (void)snprintf(memory, NAME_BYTES, "%s", unit == 0 ? "model.embed_tokens" : "lm_head");
    else
        (void)snprintf(memory, NAME_BYTES, "model.layers.%lld", (long long)unit - 1);
    *name = memory;
    return OCT_OK;
}

static oct_status describe_units(oct_build *build, oct_fsdp_unit **units, oct_err *err)
{
    const bool tied = build->hf.tie_word_embeddings;
    const int64_t count = oct_dsv3_unit_count(build->model);
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&build->persist, count, sizeof **units, &memory, err));
    *units = memory;
    for (int64_t u = 0; u < count; u++) {
        oct_fsdp_unit *unit = &(*units)[u];
        *unit = (oct_fsdp_unit){.backward_reads = u > 0 || tied,
                                .is_last = u == count - 1 || (u == 0 && tied)};
        OCT_TRY(unit_name(build, u, &unit->name, err));
        oct_dsv3_unit_params(build->model, u, &unit->first, &unit->count);
    }
    return OCT_OK;
}

static oct_status stage_shard(oct_build *build, oct_err *err)
{
    if (oct_build_ranks(build) == 1)
        return OCT_OK;
    oct_fsdp_unit *units = NULL;
    OCT_TRY(describe_units(build, &units, err));
    const oct_fsdp_options options = {
        .comm = build->comm,
        .tree = &build->tree,
        .units = units,
        .unit_count = oct_dsv3_unit_count(build->model),
        .reshard_after_forward = build->config->fsdp.reshard_after_forward,
        .prefetch = build->config->fsdp.prefetch,
        .reduce_dtype = build->reduce_dtype,
        .trace = &build->trace,
        .profile = &build->profile,
        .ledger = &build->ledger,
    };
    OCT_TRY(oct_fsdp_create(&options, &build->fsdp, err));
    const oct_config *config = build->config;
    const bool narrow = config->fsdp.narrow_backward_gather && !config->activation_checkpoint.full;
    return oct_quantized_weights_shard(&build->weights, build->fsdp, narrow, err);
}

/* An accumulator for the owned rows of every parameter, each on its own cache lines. */
static oct_status allocate_gradients(oct_build *build, oct_err *err)
{
    for (int64_t i = 0; i < build->tree.param_count; i++) {
        oct_param *param = build->tree.params[i];
        const size_t bytes = (size_t)oct_param_own_numel(param) * sizeof(float);
        void *memory = NULL;
        OCT_TRY(oct_ledger_alloc(&build->ledger, OCT_LEDGER_GRADIENTS, bytes, param->fqn, &memory,
                                 err));
        param->grad = memory;
    }
    return OCT_OK;
}

static void release_gradients(oct_build *build)
{
    for (int64_t i = 0; i < build->tree.param_count; i++) {
        oct_ledger_free(&build->ledger, build->tree.params[i]->grad);
        build->tree.params[i]->grad = NULL;
    }
}

static oct_status stage_masters(oct_build *build, oct_err *err)
{
    const oct_adamw_config adamw = oct_adamw_config_from(build->config);
    OCT_TRY(oct_optimizer_create(&build->tree, &adamw, build->comm, &build->ledger,
                                 &build->optimizer, err));
    OCT_TRY(oct_optimizer_attach_values(build->optimizer, &build->exec, build->act_dtype, err));
    OCT_TRY(allocate_gradients(build, err));
    return build->fsdp ? oct_fsdp_seal(build->fsdp, err) : OCT_OK;
}

static const struct {
    const char *name;
    oct_status (*run)(oct_build *build, oct_err *err);
} stages[OCT_STAGE_COUNT] = {
    [OCT_STAGE_POLICY] = {"policy", stage_policy},
    [OCT_STAGE_HF_CONFIG] = {"hf_config", stage_hf_config},
    [OCT_STAGE_META] = {"meta", stage_meta},
    [OCT_STAGE_PLAN] = {"plan", stage_plan},
    [OCT_STAGE_CUT] = {"cut", stage_cut},
    [OCT_STAGE_MATERIALISE] = {"materialise", stage_materialise},
    [OCT_STAGE_REPLACE] = {"replace", stage_replace},
    [OCT_STAGE_FINALIZE] = {"finalize", stage_finalize},
    [OCT_STAGE_SHARD] = {"shard", stage_shard},
    [OCT_STAGE_MASTERS] = {"masters", stage_masters},
};

/* Until weights are materialised there is nothing to compute: no parameter has values, no kernel
 * has taken scratch memory or left an event. */
static oct_status check_on_meta(const oct_build *build, oct_stage stage, oct_err *err)
{
    const char *name = oct_stage_name(stage);
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        const oct_param *param = build->tree.params[p];
        if (param->init || param->value.data || param->storage)
            return OCT_FAIL(err, OCT_E_API,
                            "build stage '%s' left the meta device: '%s' has values, none before "
                            "stage '%s' is required",
                            name, param->fqn, oct_stage_name(OCT_STAGE_MATERIALISE));
    }
    int64_t events = 0;
    for (int kind = 0; kind < OCT_TRACE_KIND_COUNT; kind++)
        events += build->trace.count[kind];
    if (events > 0 || build->scratch.peak_bytes > 0)
        return OCT_FAIL(err, OCT_E_API,
                        "build stage '%s' left the meta device: kernels left %lld events and took "
                        "%zu bytes of scratch, no kernel call before stage '%s' is required",
                        name, (long long)events, build->scratch.peak_bytes,
                        oct_stage_name(OCT_STAGE_MATERIALISE));
    return OCT_OK;
}

const char *oct_stage_name(oct_stage stage)
{
    return stage < OCT_STAGE_COUNT ? stages[stage].name : "ready";
}

void oct_build_init(oct_build *build, const oct_config *config, oct_comm *comm)
{
    *build = (oct_build){.config = config, .comm = comm};
    oct_arena_init(&build->persist, "persist");
    oct_arena_init(&build->step, "step");
    oct_arena_init(&build->scratch, "scratch");
    oct_module_tree_init(&build->tree);
    oct_quantized_weights_init(&build->weights);
    oct_arena_attach(&build->persist, &build->ledger, OCT_LEDGER_OTHER);
    oct_arena_attach(&build->step, &build->ledger, OCT_LEDGER_ACTIVATIONS);
    oct_arena_attach(&build->scratch, &build->ledger, OCT_LEDGER_ACTIVATIONS);
    oct_arena_attach(&build->tree.arena, &build->ledger, OCT_LEDGER_OTHER);
    oct_arena_attach(&build->weights.arena, &build->ledger, OCT_LEDGER_LOW_PRECISION);
}

void oct_build_release(oct_build *build)
{
    oct_fsdp_destroy(build->fsdp);
    oct_quantized_weights_release(&build->weights);
    oct_optimizer_destroy(build->optimizer);
    release_gradients(build);
    oct_module_tree_release(&build->tree);
    oct_arena_release(&build->scratch);
    oct_arena_release(&build->step);
    oct_arena_release(&build->persist);
}

oct_status oct_build_stage(oct_build *build, oct_stage stage, oct_err *err)
{
    if ((int)stage != build->next_stage)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot run build stage '%s': the next one is '%s', the order of stages "
                        "is fixed",
                        oct_stage_name(stage), oct_stage_name((oct_stage)build->next_stage));
    OCT_TRY(stages[stage].run(build, err));
    if (stage < OCT_STAGE_MATERIALISE)
        OCT_TRY(check_on_meta(build, stage, err));
    build->next_stage = (int)stage + 1;
    return OCT_OK;
}

oct_status oct_build_through(oct_build *build, oct_stage last, oct_err *err)
{
    while (build->next_stage <= (int)last)
        OCT_TRY(oct_build_stage(build, (oct_stage)build->next_stage, err));
    return OCT_OK;
}

oct_run oct_build_run(oct_build *build, bool training)
{
    return (oct_run){
        .exec = &build->exec,
        .step = &build->step,
        .trace = &build->trace,
        .profile = &build->profile,
        .hooks = build->fsdp ? oct_fsdp_hooks(build->fsdp) : NULL,
        .act_dtype = build->act_dtype,
        .reduce_dtype = build->reduce_dtype,
        .training = training,
    };
}

oct_status oct_build_finish_gradients(oct_build *build, oct_err *err)
{
    return build->fsdp ? oct_fsdp_finish_gradients(build->fsdp, err) : OCT_OK;
}

void oct_build_settle(oct_build *build)
{
    if (build->fsdp)
        oct_fsdp_settle(build->fsdp);
    oct_arena_reset(&build->step);
    oct_arena_reset(&build->scratch);
}

/* Temporaries of one expert's product at their largest: every token is its, and packed both as
 * integers and, on the FP32-FMA route, as floats. */
static int64_t expert_product_bytes(const oct_module_tree *tree, int64_t tokens)
{
    enum { TILE = 64 };
    int64_t width = 0;
    for (int64_t i = 0; i < tree->param_count; i++)
        if (tree->params[i]->ndim == 3)
            width = oct_max_i64(width,
                                oct_max_i64(tree->params[i]->shape[1], tree->params[i]->shape[2]));
    if (width == 0)
        return 0;
    const int64_t rows = oct_max_i64(tokens, width) + TILE;
    const int64_t packed = oct_panels_bytes_bound(rows, width, OCT_SIDE_LEFT) +
                           oct_panels_bytes_bound(width, rows, OCT_SIDE_LEFT) +
                           oct_panels_bytes_bound(rows, width, OCT_SIDE_RIGHT) +
                           oct_panels_bytes_bound(width, rows, OCT_SIDE_RIGHT);
    return packed + 2 * (int64_t)sizeof(float) * rows * (width + TILE);
}

/* What the kept operands of all experts may grow by: an MX scale row more per expert, as each of
 * them ends with a block of its own. */
static int64_t expert_scale_bytes(const oct_module_tree *tree)
{
    enum { PAIR = 2, ALIGNED = OCT_ARENA_ALIGN };
    int64_t bytes = 0;
    for (int64_t i = 0; i < tree->param_count; i++) {
        const oct_param *param = tree->params[i];
        if (param->ndim == 3)
            bytes += PAIR * param->shape[0] * (param->shape[1] + param->shape[2]) + 2 * ALIGNED;
    }
    return bytes;
}

oct_dsv3_pass_shape oct_build_pass_shape(const oct_build *build, int64_t ranks)
{
    const oct_config *config = build->config;
    const oct_module_tree *tree = &build->tree;
    return (oct_dsv3_pass_shape){
        .batch = config->training.micro_batch_size,
        .seq = config->training.seq_length,
        .act_dtype = build->act_dtype,
        .low_precision = build->policy.enabled,
        /* The last unit has one matrix, the head. */
        .low_precision_head = becomes_low_precision(build, tree->params[tree->param_count - 1]),
        .orientations_share = build->policy.enabled && build->policy.format->orientations_share,
        .packs_weights = oct_build_packs_at_use(build, ranks),
        .recompute_full = config->activation_checkpoint.full,
        /* Does the head's gradient need a place of its own beside the sum or the stage? */
        .accumulates = ranks == 1 ? config->gradient_accumulation_steps > 1
                                  : build->reduce_dtype == OCT_DTYPE_BF16,
        .threads = build->exec.threads,
    };
}

oct_status oct_build_prepare(oct_build *build, oct_err *err)
{
    enum { SPARE_PERCENT = 10 }; /* how far the formulas may be off */
    const oct_dsv3_pass_shape pass = oct_build_pass_shape(build, oct_build_ranks(build));
    const oct_dsv3_activations bytes = oct_dsv3_activations_of(&build->hf, &pass);
    oct_build_settle(build);
    OCT_TRY(
        oct_arena_reserve(&build->step, (size_t)(bytes.step + bytes.step / SPARE_PERCENT), err));
    return oct_arena_reserve(&build->scratch,
                             (size_t)(bytes.scratch + bytes.scratch / SPARE_PERCENT), err);
}

oct_status oct_build_reserve(oct_build *build, int64_t tokens, oct_err *err)
{
    oct_build_settle(build);
    const int64_t product = expert_product_bytes(&build->tree, tokens);
    const int64_t scales = expert_scale_bytes(&build->tree);
    OCT_TRY(oct_arena_reserve(&build->step, build->step.peak_bytes + (size_t)scales, err));
    return oct_arena_reserve(&build->scratch,
                             build->scratch.peak_bytes + (size_t)(product + scales), err);
}

oct_status oct_build_refresh(oct_build *build, int64_t *refreshed, oct_err *err)
{
    OCT_TRY(oct_optimizer_refresh_values(build->optimizer, &build->exec, err));
    const int64_t before = build->trace.count[OCT_TRACE_REFRESH];
    OCT_TRY(oct_quantized_weights_refresh(&build->weights, build->optimizer, &build->exec,
                                          &build->trace, err));
    *refreshed = build->trace.count[OCT_TRACE_REFRESH] - before;
    return OCT_OK;
}
