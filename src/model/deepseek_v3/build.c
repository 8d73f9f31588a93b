#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/size.h"
#include "model/deepseek_v3/layout.h"

#define HF_NAME(name) "transformers.models.deepseek_v3.modeling_deepseek_v3." name

const oct_module_type oct_dsv3_experts_type = {.name = HF_NAME("DeepseekV3Experts"),
                                               .ops = &oct_experts_high_precision_ops};

static const oct_module_type causal_lm_type = {.name = HF_NAME("DeepseekV3ForCausalLM")};
static const oct_module_type model_type = {.name = HF_NAME("DeepseekV3Model")};
static const oct_module_type layer_type = {.name = HF_NAME("DeepseekV3DecoderLayer")};
static const oct_module_type attention_type = {.name = HF_NAME("DeepseekV3Attention")};
static const oct_module_type mlp_type = {.name = HF_NAME("DeepseekV3MLP")};
static const oct_module_type moe_type = {.name = HF_NAME("DeepseekV3MoE")};
static const oct_module_type router_type = {.name = HF_NAME("DeepseekV3TopkRouter")};
static const oct_module_type norm_type = {.name = HF_NAME("DeepseekV3RMSNorm")};
static const oct_module_type embedding_type = {.name = "torch.nn.Embedding"};
static const oct_module_type list_type = {.name = "torch.nn.ModuleList"};

/* The slot of the child that was added last. */
static oct_module **last_slot(oct_module *parent)
{
    return &parent->children[parent->child_count - 1];
}

static oct_status add_linear(oct_module_tree *tree, oct_module *parent, const char *name,
                             int64_t in, int64_t out, bool bias, oct_module ***slot, oct_err *err)
{
    oct_module *module = NULL;
    OCT_TRY(oct_linear_add(tree, parent, name, in, out, bias, &module, err));
    *slot = last_slot(parent);
    return OCT_OK;
}

/* A module with one parameter `weight`. */
static oct_status add_weight(oct_module_tree *tree, oct_module *parent, const char *name,
                             const oct_module_type *type, int ndim, const int64_t *shape,
                             oct_param **param, oct_module **module, oct_err *err)
{
    OCT_TRY(oct_module_add(tree, parent, name, type, 0, module, err));
    return oct_module_add_param(tree, *module, "weight", ndim, shape, param, err);
}

static oct_status add_norm(oct_module_tree *tree, oct_module *parent, const char *name,
                           int64_t width, oct_param **param, oct_err *err)
{
    oct_module *module = NULL;
    return add_weight(tree, parent, name, &norm_type, 1, &width, param, &module, err);
}

static oct_status add_attention(const oct_hf_config *hf, oct_module_tree *tree, oct_module *parent,
                                dsv3_attention *to, oct_err *err)
{
    const int64_t hidden = hf->hidden_size, heads = hf->num_attention_heads;
    const int64_t q_width = heads * oct_hf_qk_head_dim(hf);
    const bool bias = hf->attention_bias;
    oct_module *self = NULL;
    OCT_TRY(oct_module_add(tree, parent, "self_attn", &attention_type, 7, &self, err));
    if (hf->q_lora_rank) {
        const int64_t rank = hf->q_lora_rank;
        OCT_TRY(add_linear(tree, self, "q_a_proj", hidden, rank, bias, &to->q_a, err));
        OCT_TRY(add_norm(tree, self, "q_a_layernorm", rank, &to->q_a_norm, err));
        OCT_TRY(add_linear(tree, self, "q_b_proj", rank, q_width, false, &to->q_b, err));
    } else {
        OCT_TRY(add_linear(tree, self, "q_proj", hidden, q_width, false, &to->q, err));
    }
    OCT_TRY(add_linear(tree, self, "kv_a_proj_with_mqa", hidden,
                       hf->kv_lora_rank + hf->qk_rope_head_dim, bias, &to->kv_a, err));
    OCT_TRY(add_norm(tree, self, "kv_a_layernorm", hf->kv_lora_rank, &to->kv_a_norm, err));
    OCT_TRY(add_linear(tree, self, "kv_b_proj", hf->kv_lora_rank,
                       heads * (hf->qk_nope_head_dim + hf->v_head_dim), false, &to->kv_b, err));
    return add_linear(tree, self, "o_proj", heads * hf->v_head_dim, hidden, bias, &to->o, err);
}

static oct_status add_mlp(oct_module_tree *tree, oct_module *parent, const char *name,
                          int64_t hidden, int64_t width, dsv3_mlp *to, oct_err *err)
{
    oct_module *self = NULL;
    to->width = width;
    OCT_TRY(oct_module_add(tree, parent, name, &mlp_type, 3, &self, err));
    OCT_TRY(add_linear(tree, self, "gate_proj", hidden, width, false, &to->gate, err));
    OCT_TRY(add_linear(tree, self, "up_proj", hidden, width, false, &to->up, err));
    return add_linear(tree, self, "down_proj", width, hidden, false, &to->down, err);
}

static oct_status add_moe(const oct_hf_config *hf, oct_module_tree *tree, oct_module *parent,
                          dsv3_layer *layer, oct_err *err)
{
    const int64_t hidden = hf->hidden_size, experts = hf->n_routed_experts;
    const int64_t width = hf->moe_intermediate_size;
    dsv3_moe *to = &layer->moe;
    oct_module *self = NULL, *container = NULL;
    oct_param *param = NULL;
    OCT_TRY(oct_module_add(tree, parent, "mlp", &moe_type, 3, &self, err));
    OCT_TRY(oct_module_add(tree, self, "experts", &oct_dsv3_experts_type, 0, &container, err));
    to->experts = last_slot(self);
    OCT_TRY(oct_module_add_param(tree, container, "gate_up_proj", 3,
                                 (int64_t[]){experts, 2 * width, hidden}, &param, err));
    OCT_TRY(oct_module_add_param(tree, container, "down_proj", 3,
                                 (int64_t[]){experts, hidden, width}, &param, err));
    OCT_TRY(add_weight(tree, self, "gate", &router_type, 2, (int64_t[]){experts, hidden},
                       &to->router, &to->gate, err));
    to->router->keep_float32 = true;
    OCT_TRY(oct_module_add_buffer(tree, to->gate, "e_score_correction_bias", experts, true,
                                  &to->bias, err));
    return add_mlp(tree, self, "shared_experts", hidden, width * hf->n_shared_experts, &layer->mlp,
                   err);
}

static oct_status add_layer(const oct_hf_config *hf, oct_module_tree *tree, oct_module *list,
                            dsv3_layer *layer, oct_err *err)
{
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)layer->index);
    oct_module *self = NULL;
    OCT_TRY(oct_module_add(tree, list, name, &layer_type, 4, &self, err));
    OCT_TRY(add_attention(hf, tree, self, &layer->attention, err));
    layer->has_experts = layer->index >= hf->first_k_dense_replace;
    if (layer->has_experts)
        OCT_TRY(add_moe(hf, tree, self, layer, err));
    else
        OCT_TRY(
            add_mlp(tree, self, "mlp", hf->hidden_size, hf->intermediate_size, &layer->mlp, err));
    OCT_TRY(add_norm(tree, self, "input_layernorm", hf->hidden_size, &layer->input_norm, err));
    return add_norm(tree, self, "post_attention_layernorm", hf->hidden_size, &layer->post_norm,
                    err);
}

static oct_status add_head(oct_dsv3 *model, oct_module *root, oct_err *err)
{
    const oct_hf_config *hf = &model->hf;
    if (!hf->tie_word_embeddings)
        return add_linear(model->tree, root, "lm_head", hf->hidden_size, hf->vocab_size, false,
                          &model->head, err);
    oct_module *head = NULL;
    OCT_TRY(oct_module_add(model->tree, root, "lm_head", &oct_linear_type, 0, &head, err));
    model->head = last_slot(root);
    return oct_module_share_param(model->tree, head, "weight", model->embedding, err);
}

static oct_status allocate(oct_arena *arena, int64_t count, size_t size, void *out, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_array(arena, count, size, &memory, err));
    memset(memory, 0, (size_t)count * size);
    memcpy(out, &memory, sizeof memory);
    return OCT_OK;
}

static oct_status add_modules(oct_dsv3 *model, oct_err *err)
{
    const oct_hf_config *hf = &model->hf;
    oct_module_tree *tree = model->tree;
    const int64_t layers = hf->num_hidden_layers;
    oct_module *root = NULL, *body = NULL, *embedding = NULL, *list = NULL;
    OCT_TRY(oct_module_add(tree, NULL, "", &causal_lm_type, 2, &root, err));
    OCT_TRY(oct_module_add(tree, root, "model", &model_type, 3, &body, err));
    OCT_TRY(add_weight(tree, body, "embed_tokens", &embedding_type, 2,
                       (int64_t[]){hf->vocab_size, hf->hidden_size}, &model->embedding, &embedding,
                       err));
    OCT_TRY(oct_module_add(tree, body, "layers", &list_type, (int)layers, &list, err));
    for (int64_t l = 0; l < layers; l++) {
        model->layers[l].index = l;
        model->unit_first_param[1 + l] = tree->param_count;
        OCT_TRY(add_layer(hf, tree, list, &model->layers[l], err));
    }
    model->unit_first_param[1 + layers] = tree->param_count;
    OCT_TRY(add_norm(tree, body, "norm", hf->hidden_size, &model->norm, err));
    OCT_TRY(add_head(model, root, err));
    model->unit_first_param[2 + layers] = tree->param_count;
    return OCT_OK;
}

/* Sizes of a configuration gone wrong end here, not in the killer of processes without memory. */
static oct_status check_tree_memory(const oct_hf_config *hf, oct_err *err)
{
    enum { LAYER_BYTES = 8192 }; /* modules, parameters and names of a layer, roughly */
    const double layers = (double)hf->num_hidden_layers;
    const double needed = layers * (LAYER_BYTES + sizeof(int64_t) * (double)hf->n_routed_experts) +
                          sizeof(float) * (double)hf->qk_rope_head_dim / 2.0;
    const double limit = (double)oct_memory_limit() / 2.0;
    if (needed > limit)
        return OCT_FAIL(err, OCT_E_NOMEM,
                        "out of memory: %lld layers of %lld experts need %.4g GB without their "
                        "weights, at most %.4g GB are required (num_hidden_layers, "
                        "n_routed_experts)",
                        (long long)hf->num_hidden_layers, (long long)hf->n_routed_experts,
                        1e-9 * needed, 1e-9 * limit);
    return OCT_OK;
}

oct_status oct_dsv3_build(const oct_hf_config *hf, oct_module_tree *tree, oct_dsv3 **model,
                          oct_err *err)
{
    OCT_TRY(check_tree_memory(hf, err));
    oct_arena *arena = &tree->arena;
    const int64_t layers = hf->num_hidden_layers, experts = hf->n_routed_experts;
    oct_dsv3 *self = NULL;
    OCT_TRY(allocate(arena, 1, sizeof *self, &self, err));
    self->hf = *hf;
    self->tree = tree;
    self->moe_layers = oct_max_i64(0, layers - hf->first_k_dense_replace);
    OCT_TRY(allocate(arena, layers, sizeof *self->layers, &self->layers, err));
    OCT_TRY(
        allocate(arena, layers + 3, sizeof *self->unit_first_param, &self->unit_first_param, err));
    OCT_TRY(allocate(arena, self->moe_layers * experts, sizeof *self->counts, &self->counts, err));
    OCT_TRY(
        allocate(arena, hf->qk_rope_head_dim / 2, sizeof *self->inv_freq, &self->inv_freq, err));
    OCT_TRY(add_modules(self, err));
    int64_t *counts = self->counts;
    for (int64_t l = 0; l < layers; l++)
        if (self->layers[l].has_experts) {
            self->layers[l].moe.counts = counts;
            counts += experts;
        }
    oct_hf_inv_freq(hf, self->inv_freq);
    self->rope_factor = (float)oct_hf_rope_factor(hf);
    self->softmax_scale = (float)oct_hf_softmax_scale(hf);
    *model = self;
    return OCT_OK;
}

const oct_hf_config *oct_dsv3_config(const oct_dsv3 *model)
{
    return &model->hf;
}

oct_module_tree *oct_dsv3_tree(const oct_dsv3 *model)
{
    return model->tree;
}

int64_t oct_dsv3_unit_count(const oct_dsv3 *model)
{
    return model->hf.num_hidden_layers + 2;
}

void oct_dsv3_unit_params(const oct_dsv3 *model, int64_t unit, int64_t *first, int64_t *count)
{
    *first = model->unit_first_param[unit];
    *count = model->unit_first_param[unit + 1] - *first;
}

void oct_dsv3_observe(oct_dsv3 *model, const oct_dsv3_observer *observer)
{
    model->observer = observer;
}
