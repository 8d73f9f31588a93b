#include "verify/facts.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "model/deepseek_v3/hf_config.h"

enum { TARGETS_PER_LAYER = 10 };

typedef struct maker {
    oct_verify_facts *facts;
    int64_t layer;
} maker;

static oct_verify_target *add(maker *m, const char *name, int64_t rows, int64_t cols)
{
    oct_verify_target *t = &m->facts->targets[m->facts->target_count++];
    *t = (oct_verify_target){.experts = 1, .rows = rows, .cols = cols};
    (void)snprintf(t->fqn, sizeof t->fqn, "model.layers.%lld.%s", (long long)m->layer, name);
    (void)snprintf(t->module, sizeof t->module, "model.layers.%lld.%s", (long long)m->layer, name);
    (void)snprintf(t->weight, sizeof t->weight, "model.layers.%lld.%s.weight", (long long)m->layer,
                   name);
    return t;
}

static void add_dense(maker *m, const char *name, int64_t rows, int64_t cols)
{
    (void)add(m, name, rows, cols);
    m->facts->dense_targets++;
}

static void add_experts(maker *m, const char *name, int64_t experts, int64_t rows, int64_t cols)
{
    oct_verify_target *t = add(m, name, rows, cols);
    t->grouped = true;
    t->experts = experts;
    t->weight[strlen(t->weight) - strlen(".weight")] = '\0';
    t->module[strlen(t->module) - strlen(strrchr(name, '.'))] = '\0';
}

static void add_layer(maker *m, const oct_hf_config *hf)
{
    const int64_t heads = hf->num_attention_heads, hidden = hf->hidden_size;
    const int64_t wide = hf->intermediate_size, expert = hf->moe_intermediate_size;
    const int64_t shared = hf->n_shared_experts * expert;
    if (hf->q_lora_rank > 0) {
        add_dense(m, "self_attn.q_a_proj", hf->q_lora_rank, hidden);
        add_dense(m, "self_attn.q_b_proj", heads * oct_hf_qk_head_dim(hf), hf->q_lora_rank);
    } else {
        add_dense(m, "self_attn.q_proj", heads * oct_hf_qk_head_dim(hf), hidden);
    }
    add_dense(m, "self_attn.kv_a_proj_with_mqa", hf->kv_lora_rank + hf->qk_rope_head_dim, hidden);
    add_dense(m, "self_attn.kv_b_proj", heads * (hf->qk_nope_head_dim + hf->v_head_dim),
              hf->kv_lora_rank);
    add_dense(m, "self_attn.o_proj", hidden, heads * hf->v_head_dim);
    if (m->layer < hf->first_k_dense_replace) {
        add_dense(m, "mlp.gate_proj", wide, hidden);
        add_dense(m, "mlp.up_proj", wide, hidden);
        add_dense(m, "mlp.down_proj", hidden, wide);
        return;
    }
    add_dense(m, "mlp.shared_experts.gate_proj", shared, hidden);
    add_dense(m, "mlp.shared_experts.up_proj", shared, hidden);
    add_dense(m, "mlp.shared_experts.down_proj", hidden, shared);
    add_experts(m, "mlp.experts.gate_up_proj", hf->n_routed_experts, 2 * expert, hidden);
    add_experts(m, "mlp.experts.down_proj", hf->n_routed_experts, hidden, expert);
    m->facts->expert_modules++;
}

static oct_status add_targets(const oct_config *config, oct_arena *arena, oct_verify_facts *facts,
                              oct_err *err)
{
    oct_hf_config hf;
    void *memory = NULL;
    OCT_TRY(oct_hf_config_load(config->model.config_name_or_path,
                               config->model.config_overrides_json, arena, &hf, err));
    OCT_TRY(oct_arena_array(arena, TARGETS_PER_LAYER * hf.num_hidden_layers,
                            sizeof(oct_verify_target), &memory, err));
    facts->targets = memory;
    for (maker m = {.facts = facts}; m.layer < hf.num_hidden_layers; m.layer++)
        add_layer(&m, &hf);
    return OCT_OK;
}

oct_status oct_verify_facts_of(const oct_verify_run *run, oct_arena *arena, oct_verify_facts *out,
                               oct_err *err)
{
    char path[OCT_PATH_BYTES];
    const char *files[1] = {path};
    oct_config config;
    OCT_TRY(oct_path_join(run->dir, "config.yaml", path, sizeof path, err));
    OCT_TRY(oct_config_load(files, 1, NULL, 0, arena, NULL, NULL, &config, err));
    OCT_TRY(oct_config_resolve(&config, run->ranks, err));
    *out = (oct_verify_facts){
        .format = run->format,
        .ranks = run->ranks,
        .reshard = config.fsdp.reshard_after_forward,
        .recompute = config.activation_checkpoint.full,
        .even = strcmp(config.fsdp.shard, "even") == 0,
        .fallback = config.fsdp.fallback_to_unsharded,
        .resumed = config.checkpoint.restore_from != NULL,
        .accumulation = config.gradient_accumulation_steps,
        .steps = (int64_t)json_array_size(run->metrics),
    };
    const json_t *first = json_array_get(run->metrics, 0);
    out->first_step = first ? json_integer_value(json_object_get(first, "step")) - 1 : 0;
    (void)snprintf(out->name, sizeof out->name, "%s", run->name);
    return add_targets(&config, arena, out, err);
}

oct_status oct_verify_facts_of_config(const char *file, oct_arena *arena, oct_verify_facts *out,
                                      oct_err *err)
{
    oct_config config;
    OCT_TRY(oct_config_load(&file, 1, NULL, 0, arena, NULL, NULL, &config, err));
    *out = (oct_verify_facts){0};
    return add_targets(&config, arena, out, err);
}

int64_t oct_verify_target_of(const oct_verify_facts *facts, const char *fqn)
{
    for (int64_t i = 0; i < facts->target_count; i++)
        if (strcmp(facts->targets[i].fqn, fqn) == 0)
            return i;
    return -1;
}

int64_t oct_verify_weight_of(const oct_verify_facts *facts, const char *fqn)
{
    for (int64_t i = 0; i < facts->target_count; i++)
        if (strcmp(facts->targets[i].weight, fqn) == 0)
            return i;
    return -1;
}

bool oct_verify_is_replicated(const oct_verify_facts *facts, const oct_verify_target *target)
{
    if (!facts->even || !facts->fallback || facts->ranks == 1)
        return false;
    const int64_t whole = target->grouped ? target->experts : target->rows;
    if (whole % facts->ranks != 0)
        return true;
    const int64_t local = whole / facts->ranks * (target->grouped ? target->rows : 1);
    return facts->format == OCT_VERIFY_MXFP8 && local % 64 != 0;
}
