#include "trainer/plan_report.h"

#include <string.h>

#include "base/size.h"
#include "fsdp/shard.h"
#include "trainer/step_time.h"

/* What is known of a parameter besides its shape. */
typedef struct param_role {
    bool low_precision;
    int64_t unit;
} param_role;

/* What a unit needs besides the rows that a rank owns, while it computes. */
typedef struct unit_bytes {
    int64_t forward, backward; /* its sharded parameters, whole, as each pass gathers them */
} unit_bytes;

typedef struct planner {
    oct_build *build;
    oct_sharding sharding;
    int64_t ranks;
    param_role *roles; /* one per parameter, in tree order */
    unit_bytes *units;
} planner;

static oct_status new_array(planner *p, int64_t count, size_t size, void *out, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&p->build->persist, count, size, &memory, err));
    memset(memory, 0, (size_t)count * size);
    memcpy(out, &memory, sizeof memory);
    return OCT_OK;
}

static int64_t index_of(const oct_module_tree *tree, const oct_param *param)
{
    int64_t i = 0;
    while (tree->params[i] != param)
        i++;
    return i;
}

/* Marks the parameters that the plan turns into 8-bit weights and counts what it replaces. */
static void mark_low_precision(const planner *p, oct_plan_report *out)
{
    const oct_module_tree *tree = &p->build->tree;
    int64_t count = 0;
    const oct_plan_target *targets = oct_plan_targets(p->build->plan, &count);
    for (int64_t t = 0; t < count; t++) {
        const oct_module *module = targets[t].module;
        if (oct_module_type_is(module->type, &oct_linear_type))
            out->replaced_linear++;
        else
            out->replaced_experts++;
        for (int i = 0; i < module->param_count; i++) {
            const oct_param *param = module->params[i];
            if (param->ndim < 2)
                continue;
            p->roles[index_of(tree, param)].low_precision = true;
            out->parameters_low_precision += oct_param_numel(param);
        }
    }
}

static void mark_units(const planner *p)
{
    const oct_dsv3 *model = p->build->model;
    for (int64_t u = 0; u < oct_dsv3_unit_count(model); u++) {
        int64_t first = 0, count = 0;
        oct_dsv3_unit_params(model, u, &first, &count);
        for (int64_t i = first; i < first + count; i++)
            p->roles[i].unit = u;
    }
}

static oct_status cut(planner *p, const oct_param *param, bool low_precision, oct_plan_shard *out,
                      oct_err *err)
{
    out->param = param;
    out->low_precision = low_precision;
    OCT_TRY(new_array(p, p->ranks, sizeof(int64_t), &out->rows_per_rank, err));
    OCT_TRY(oct_build_shard_decide(p->build, &p->sharding, param, low_precision, &out->replicated,
                                   err));
    for (int64_t r = 0; r < p->ranks; r++)
        out->rows_per_rank[r] = oct_shard_of_param(&p->sharding, param, out->replicated, r).rows;
    return OCT_OK;
}

/* The shape of the rows that a rank owns. */
static void local_shape(const oct_plan_shard *shard, int64_t rank, int64_t shape[3])
{
    for (int d = 0; d < 3; d++)
        shape[d] = shard->param->shape[d];
    shape[0] = shard->rows_per_rank[rank];
}

static int64_t numel_of(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    return n;
}

/* These compute with their FP32 master; the others with a copy of 16 bits. */
static bool computes_in_float32(const planner *p, const oct_param *param)
{
    return p->build->act_dtype == OCT_DTYPE_F32 || param->keep_float32;
}

/* The form that products read, of parameter i with this many rows: 8-bit storage, or 32 or 16 bits
 * an element. */
static int64_t compute_bytes(const planner *p, int64_t i, const int64_t *shape)
{
    const oct_param *param = p->build->tree.params[i];
    if (p->roles[i].low_precision)
        return oct_weight_bytes(p->build->policy.format, param->ndim, shape);
    return (computes_in_float32(p, param) ? 4 : 2) * numel_of(param->ndim, shape);
}

/* What of it the forward pass reads. */
static int64_t fprop_bytes(const planner *p, int64_t i, const int64_t *shape)
{
    return p->roles[i].low_precision ? oct_weight_fprop_bytes(p->build->policy.format,
                                                              p->build->tree.params[i]->ndim, shape)
                                     : compute_bytes(p, i, shape);
}

/* What of it dgrad reads. */
static int64_t dgrad_bytes(const planner *p, int64_t i, const int64_t *shape)
{
    const int64_t all = compute_bytes(p, i, shape), fprop = fprop_bytes(p, i, shape);
    return fprop < all ? all - fprop : all;
}

/* Packed panels of both orientations, as made after a refresh. */
static int64_t both_panels_bytes(const oct_param *param)
{
    const int64_t experts = param->ndim == 3 ? param->shape[0] : 1;
    const int64_t n = param->shape[param->ndim - 2], k = param->shape[param->ndim - 1];
    return experts * (oct_panels_bytes_bound(n, k, OCT_SIDE_RIGHT) +
                      oct_panels_bytes_bound(k, n, OCT_SIDE_RIGHT));
}

/* Does a unit stay gathered from its forward to its backward pass? The head's is followed by its
 * backward pass at once, and with a tied head so is the embedding's. */
static bool stays(const planner *p, int64_t unit)
{
    const oct_build *build = p->build;
    return !build->config->fsdp.reshard_after_forward ||
           unit == oct_dsv3_unit_count(build->model) - 1 ||
           (unit == 0 && build->hf.tie_word_embeddings);
}

static bool gathers_backward(const planner *p, int64_t unit)
{
    return !stays(p, unit) && unit > 0; /* the backward pass of an embedding reads no weights */
}

static bool is_narrow(const planner *p)
{
    const oct_config *config = p->build->config;
    return config->fsdp.narrow_backward_gather && !config->activation_checkpoint.full;
}

/* Of parameter i with this many rows: what travels before the forward and the backward pass. */
static int64_t forward_gather(const planner *p, int64_t i, const int64_t *shape)
{
    return stays(p, p->roles[i].unit) ? compute_bytes(p, i, shape) : fprop_bytes(p, i, shape);
}

static int64_t backward_gather(const planner *p, int64_t i, const int64_t *shape)
{
    if (!gathers_backward(p, p->roles[i].unit))
        return 0;
    return is_narrow(p) ? dgrad_bytes(p, i, shape) : compute_bytes(p, i, shape);
}

static void measure_units(const planner *p, const oct_plan_report *report)
{
    const oct_module_tree *tree = &p->build->tree;
    for (int64_t i = 0; i < tree->param_count; i++) {
        const oct_param *param = tree->params[i];
        unit_bytes *unit = &p->units[p->roles[i].unit];
        if (report->shards[i].replicated)
            continue;
        unit->forward += forward_gather(p, i, param->shape);
        unit->backward += backward_gather(p, i, param->shape);
    }
}

/* Gathered weights live in windows: one for each unit that stays, and one, with prefetch two, in
 * which the others take turns. */
static void add_units(const planner *p, oct_plan_bytes *bytes)
{
    const int turns = p->build->config->fsdp.prefetch ? 2 : 1;
    int64_t gathered[2] = {0};
    if (p->ranks == 1)
        return;
    for (int64_t u = 0; u < oct_dsv3_unit_count(p->build->model); u++) {
        const unit_bytes *unit = &p->units[u];
        const int64_t most = oct_max_i64(unit->forward, unit->backward);
        if (stays(p, u))
            bytes->unsharded += most;
        else
            gathered[u % turns] = oct_max_i64(gathered[u % turns], most);
    }
    bytes->unsharded += gathered[0] + gathered[1];
}

static int64_t reduce_element(const planner *p)
{
    return p->build->reduce_dtype == OCT_DTYPE_BF16 ? 2 : 4;
}

static oct_plan_bytes bytes_of_rank(const planner *p, const oct_plan_report *report, int64_t rank)
{
    const oct_module_tree *tree = &p->build->tree;
    oct_plan_bytes bytes = {0};
    int64_t largest = 0;
    for (int64_t i = 0; i < tree->param_count; i++) {
        const oct_param *param = tree->params[i];
        int64_t shape[3];
        local_shape(&report->shards[i], rank, shape);
        const int64_t local = numel_of(param->ndim, shape);
        bytes.master += 4 * local;
        bytes.moments += 8 * local;
        bytes.gradients += 4 * local;
        largest = oct_max_i64(largest, oct_param_numel(param));
        if (p->roles[i].low_precision)
            bytes.low_precision += compute_bytes(p, i, shape);
        else if (!computes_in_float32(p, param))
            bytes.high_precision += compute_bytes(p, i, shape);
        if (p->roles[i].low_precision && !oct_build_packs_at_use(p->build, p->ranks))
            bytes.panels += both_panels_bytes(param);
    }
    add_units(p, &bytes);
    bytes.staging = p->ranks == 1 ? 0 : reduce_element(p) * largest;
    const oct_dsv3_pass_shape pass = oct_build_pass_shape(p->build, p->ranks);
    bytes.activations = oct_dsv3_activation_bytes(&p->build->hf, &pass);
    bytes.peak = bytes.master + bytes.moments + bytes.low_precision + bytes.high_precision +
                 bytes.gradients + bytes.staging + bytes.unsharded + bytes.panels +
                 bytes.activations;
    return bytes;
}

/* --- communication ---------------------------------------------------------------------------- */

typedef struct traffic {
    int64_t all_gather, reduce_scatter;
} traffic;

/* What a rank receives of others' weights and sends of its gradients in a step. A unit is gathered
 * for each forward and each backward pass, or once for both if it stays. Gradients go to their
 * owners once a micro-batch; those of a replicated parameter too, in equal parts, and their FP32
 * sums come back once a step. */
static traffic traffic_of_rank(const planner *p, const oct_plan_report *report, int64_t rank)
{
    const int64_t micro = p->build->config->gradient_accumulation_steps;
    traffic bytes = {0};
    for (int64_t i = 0; i < p->build->tree.param_count; i++) {
        const oct_param *param = p->build->tree.params[i];
        const int64_t numel = oct_param_numel(param);
        int64_t shape[3];
        local_shape(&report->shards[i], rank, shape);
        if (report->shards[i].replicated) {
            const int64_t others = numel - numel / p->ranks;
            bytes.reduce_scatter += micro * reduce_element(p) * others;
            bytes.all_gather += 4 * others;
            continue;
        }
        bytes.reduce_scatter += micro * reduce_element(p) * (numel - numel_of(param->ndim, shape));
        bytes.all_gather +=
            micro * (forward_gather(p, i, param->shape) - forward_gather(p, i, shape));
        bytes.all_gather +=
            micro * (backward_gather(p, i, param->shape) - backward_gather(p, i, shape));
    }
    return bytes;
}

static void count_communication(const planner *p, oct_plan_report *report)
{
    for (int64_t r = 0; r < p->ranks; r++) {
        const traffic bytes = traffic_of_rank(p, report, r);
        if (bytes.all_gather + bytes.reduce_scatter >
            report->all_gather_bytes + report->reduce_scatter_bytes) {
            report->all_gather_bytes = bytes.all_gather;
            report->reduce_scatter_bytes = bytes.reduce_scatter;
        }
    }
}

/* Sums of bytes are counted in 64 bits: what is far beyond any machine would wrap. */
static oct_status check_countable(const oct_build *build, oct_err *err)
{
    enum { STATE_BYTES = 16 }; /* of a parameter: master, two moments, gradient */
    static const double most = 0x1p53;
    const oct_config *config = build->config;
    const double tokens =
        (double)config->training.micro_batch_size * (double)config->training.seq_length;
    double bytes = 4.0 * tokens * (double)(build->hf.hidden_size + build->hf.vocab_size);
    for (int64_t p = 0; p < build->tree.param_count; p++)
        bytes += STATE_BYTES * (double)oct_param_numel(build->tree.params[p]);
    if (bytes <= most)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_NOMEM,
                    "cannot plan memory: %.4g GB of states and activations, at most %.4g GB are "
                    "required (model, training.micro_batch_size, training.seq_length)",
                    1e-9 * bytes, 1e-9 * most);
}

oct_status oct_plan_report_make(oct_build *build, int64_t ranks, oct_plan_report *out, oct_err *err)
{
    const oct_config *config = build->config;
    OCT_TRY(check_countable(build, err));
    planner p = {
        .build = build,
        .sharding = oct_build_sharding(config, ranks),
        .ranks = ranks,
    };
    const oct_dsv3_size size = oct_dsv3_size_of(&build->hf, config->training.seq_length);
    *out = (oct_plan_report){
        .ranks = ranks,
        .parameters_total = size.parameters_total,
        .parameters_active = size.parameters_active,
        .shard_count = build->tree.param_count,
        .flops_per_token_megatron = size.flops_per_token_megatron,
        .flops_per_token_torchtitan = size.flops_per_token_torchtitan,
    };
    OCT_TRY(new_array(&p, build->tree.param_count, sizeof(param_role), &p.roles, err));
    OCT_TRY(new_array(&p, build->tree.param_count, sizeof(oct_plan_shard), &out->shards, err));
    OCT_TRY(new_array(&p, oct_dsv3_unit_count(build->model), sizeof(unit_bytes), &p.units, err));
    mark_low_precision(&p, out);
    OCT_TRY(oct_high_precision_of(build, &out->high_precision, err));
    mark_units(&p);
    for (int64_t i = 0; i < build->tree.param_count; i++)
        OCT_TRY(cut(&p, build->tree.params[i], p.roles[i].low_precision, &out->shards[i], err));
    measure_units(&p, out);
    for (int64_t r = 0; r < ranks; r++) {
        const oct_plan_bytes bytes = bytes_of_rank(&p, out, r);
        if (bytes.peak > out->bytes.peak)
            out->bytes = bytes;
    }
    count_communication(&p, out);
    return OCT_OK;
}

static void put_shard(oct_json *json, const oct_plan_report *report, const oct_plan_shard *shard)
{
    oct_json_object(json, NULL);
    oct_json_string(json, "fqn", shard->param->fqn);
    oct_json_array(json, "shape");
    for (int d = 0; d < shard->param->ndim; d++)
        oct_json_int(json, NULL, shard->param->shape[d]);
    oct_json_end(json);
    oct_json_array(json, "rows_per_rank");
    for (int64_t r = 0; r < report->ranks; r++)
        oct_json_int(json, NULL, shard->rows_per_rank[r]);
    oct_json_end(json);
    oct_json_bool(json, "replicated", shard->replicated);
    oct_json_end(json);
}

static void put_rules(oct_json *json, const oct_plan *plan)
{
    oct_json_array(json, "rules");
    for (int64_t r = 0; r < oct_plan_rule_count(plan); r++) {
        const oct_plan_rule *rule = oct_plan_rule_at(plan, r);
        for (int64_t i = 0; i < rule->pattern_count; i++) {
            oct_json_object(json, NULL);
            oct_json_string(json, "pattern", rule->patterns[i]);
            oct_json_int(json, "hits", oct_plan_hits(plan, r, i));
            oct_json_end(json);
        }
    }
    oct_json_end(json);
}

static void put_bytes(oct_json *json, const oct_plan_bytes *bytes)
{
    oct_json_object(json, "bytes_per_rank");
    oct_json_int(json, "master", bytes->master);
    oct_json_int(json, "moments", bytes->moments);
    oct_json_int(json, "low_precision", bytes->low_precision);
    oct_json_int(json, "high_precision", bytes->high_precision);
    oct_json_int(json, "gradients", bytes->gradients);
    oct_json_int(json, "staging", bytes->staging);
    oct_json_int(json, "unsharded", bytes->unsharded);
    oct_json_int(json, "panels", bytes->panels);
    oct_json_int(json, "activations", bytes->activations);
    oct_json_int(json, "peak", bytes->peak);
    oct_json_end(json);
}

oct_status oct_plan_report_json(const oct_build *build, const oct_plan_report *report,
                                const oct_machine *machine, oct_json *json, oct_err *err)
{
    oct_json_object(json, NULL);
    oct_json_int(json, "schema", 1);
    oct_json_int(json, "parameters_total", report->parameters_total);
    oct_json_int(json, "parameters_active", report->parameters_active);
    oct_json_int(json, "parameters_low_precision", report->parameters_low_precision);
    oct_json_object(json, "replaced");
    oct_json_int(json, "linear", report->replaced_linear);
    oct_json_int(json, "experts", report->replaced_experts);
    oct_json_end(json);
    oct_json_object(json, "high_precision");
    oct_json_int(json, "linear", report->high_precision.linear);
    oct_json_int(json, "experts", report->high_precision.experts);
    oct_json_int(json, "router", report->high_precision.router);
    oct_json_int(json, "attention", report->high_precision.attention);
    oct_json_end(json);
    put_rules(json, build->plan);
    oct_json_array(json, "shards");
    for (int64_t i = 0; i < report->shard_count; i++)
        put_shard(json, report, &report->shards[i]);
    oct_json_end(json);
    put_bytes(json, &report->bytes);
    oct_json_object(json, "communication_bytes_per_step");
    oct_json_int(json, "all_gather", report->all_gather_bytes);
    oct_json_int(json, "reduce_scatter", report->reduce_scatter_bytes);
    oct_json_end(json);
    oct_json_object(json, "flops_per_token");
    oct_json_double(json, "megatron", report->flops_per_token_megatron);
    oct_json_double(json, "torchtitan", report->flops_per_token_torchtitan);
    oct_json_end(json);
    if (machine) {
        const oct_step_time time = oct_step_time_of(machine, build, report);
        oct_step_time_json(machine, &time, json);
    }
    oct_json_end(json);
    return oct_json_finish(json, err);
}
