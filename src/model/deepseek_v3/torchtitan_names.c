#include "model/deepseek_v3/torchtitan_names.h"

#include <stdio.h>
#include <string.h>

static const oct_dsv3_alias aliases[] = {
    {"tok_embeddings", "model.embed_tokens"},
    {"layers.*.attention_norm", "model.layers.*.input_layernorm"},
    {"layers.*.attention.wq", "model.layers.*.self_attn.q_proj"},
    {"layers.*.attention.wq_a", "model.layers.*.self_attn.q_a_proj"},
    {"layers.*.attention.q_norm", "model.layers.*.self_attn.q_a_layernorm"},
    {"layers.*.attention.wq_b", "model.layers.*.self_attn.q_b_proj"},
    {"layers.*.attention.wkv_a", "model.layers.*.self_attn.kv_a_proj_with_mqa"},
    {"layers.*.attention.kv_norm", "model.layers.*.self_attn.kv_a_layernorm"},
    {"layers.*.attention.wkv_b", "model.layers.*.self_attn.kv_b_proj"},
    {"layers.*.attention.wo", "model.layers.*.self_attn.o_proj"},
    {"layers.*.ffn_norm", "model.layers.*.post_attention_layernorm"},
    {"layers.*.feed_forward.w1", "model.layers.*.mlp.gate_proj"},
    {"layers.*.feed_forward.w3", "model.layers.*.mlp.up_proj"},
    {"layers.*.feed_forward.w2", "model.layers.*.mlp.down_proj"},
    {"layers.*.moe.router.gate", "model.layers.*.mlp.gate"},
    {"layers.*.moe.expert_bias", "model.layers.*.mlp.gate.e_score_correction_bias"},
    {"layers.*.moe.experts", "model.layers.*.mlp.experts"},
    {"layers.*.moe.shared_experts.w1", "model.layers.*.mlp.shared_experts.gate_proj"},
    {"layers.*.moe.shared_experts.w3", "model.layers.*.mlp.shared_experts.up_proj"},
    {"layers.*.moe.shared_experts.w2", "model.layers.*.mlp.shared_experts.down_proj"},
    {"norm", "model.norm"},
    {"output", "lm_head"},
};

enum { ALIASES = sizeof aliases / sizeof aliases[0] };

const oct_dsv3_alias *oct_dsv3_aliases(int *count)
{
    *count = ALIASES;
    return aliases;
}

/* `name` matched against `from`, and `to` with the layer number of `name`. */
static bool substitute(const char *from, const char *to, const char *name, char out[OCT_DSV3_NAME])
{
    static const char suffix[] = ".weight";
    const char *star = strchr(from, '*'), *end = name + strlen(name);
    size_t digits = 0;
    if (star) {
        const size_t before = (size_t)(star - from);
        if (strncmp(name, from, before) != 0)
            return false;
        digits = strspn(name + before, "0123456789");
        if (digits == 0)
            return false;
        name += before;
        from = star + 1;
    }
    const char *number = name;
    name += digits;
    const size_t rest = strlen(from);
    if (strncmp(name, from, rest) != 0 || (name[rest] && strcmp(name + rest, suffix) != 0))
        return false;
    const char *gap = strchr(to, '*');
    const int head = gap ? (int)(gap - to) : (int)strlen(to);
    const int length =
        snprintf(out, OCT_DSV3_NAME, "%.*s%.*s%s%.*s", head, to, gap ? (int)digits : 0, number,
                 gap ? gap + 1 : "", (int)(end - (name + rest)), name + rest);
    return length > 0 && length < OCT_DSV3_NAME;
}

bool oct_dsv3_torchtitan_name(const char *hf, char out[OCT_DSV3_NAME])
{
    for (int i = 0; i < ALIASES; i++)
        if (substitute(aliases[i].hf, aliases[i].torchtitan, hf, out))
            return true;
    return false;
}

bool oct_dsv3_hf_name(const char *torchtitan, char out[OCT_DSV3_NAME])
{
    for (int i = 0; i < ALIASES; i++)
        if (substitute(aliases[i].torchtitan, aliases[i].hf, torchtitan, out))
            return true;
    return false;
}
