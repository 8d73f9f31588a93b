/* The HF DeepseekV3Config: what a config.json says, in either spelling, plus overrides. */
#ifndef OCT_MODEL_DEEPSEEK_V3_HF_CONFIG_H
#define OCT_MODEL_DEEPSEEK_V3_HF_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* Rotary embedding; for the default type only theta counts. 0 stands for a field that is absent or
 * null where HF tests for that: factors, mscale. */
typedef struct oct_rope_parameters {
    bool yarn;
    double theta;
    double factor, beta_fast, beta_slow;
    double mscale, mscale_all_dim, attention_factor;
    int64_t original_max_position_embeddings;
    bool truncate;
} oct_rope_parameters;

/* Every field that decides about structure or numbers. Names are those of HF. */
typedef struct oct_hf_config {
    int64_t vocab_size, hidden_size, intermediate_size, moe_intermediate_size;
    int64_t num_hidden_layers, first_k_dense_replace;
    int64_t num_attention_heads, num_key_value_heads;
    int64_t n_routed_experts, n_shared_experts, num_experts_per_tok, n_group, topk_group;
    bool norm_topk_prob;
    double routed_scaling_factor;
    int64_t q_lora_rank; /* 0 = null: one q_proj */
    int64_t kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    int64_t max_position_embeddings;
    double initializer_range, rms_norm_eps;
    oct_rope_parameters rope;
    bool rope_interleave, attention_bias, tie_word_embeddings, use_cache;
    int64_t pad_token_id, bos_token_id, eos_token_id; /* -1 = null */
    int64_t num_nextn_predict_layers;                 /* kept for export; no module is built */
    const char *dtype; /* static: "bfloat16", "float32", "float16"; NULL if the file has none */
} oct_hf_config;

/* Reads `path_or_dir` (a config.json or the folder that holds one), then applies `overrides_json`,
 * an object of HF fields (NULL or "{}": none). Absent fields get the defaults of HF; unknown fields
 * of the file are ignored, as HF does, unknown overrides are refused with the nearest name. `arena`
 * holds the text while it is read. Errors: OCT_E_IO if the file cannot be read; OCT_E_CONFIG for
 * text that is no JSON object, duplicate keys, wrong types, values out of range, and features that
 * octet does not have; the message names the file, the field, the value found and what is required.
 */
oct_status oct_hf_config_load(const char *path_or_dir, const char *overrides_json, oct_arena *arena,
                              oct_hf_config *out, oct_err *err) OCT_MUST_CHECK;

/* The same from JSON text; `where` stands for the file in messages. */
oct_status oct_hf_config_parse(const char *text, const char *where, const char *overrides_json,
                               oct_hf_config *out, oct_err *err) OCT_MUST_CHECK;

/* qk_nope_head_dim + qk_rope_head_dim. */
int64_t oct_hf_qk_head_dim(const oct_hf_config *hf);

/* (nope + rope)^-0.5, times mscale^2 where yarn asks for it. */
double oct_hf_softmax_scale(const oct_hf_config *hf);

/* What the cosines and sines are multiplied with. */
double oct_hf_rope_factor(const oct_hf_config *hf);

/* inv_freq [qk_rope_head_dim / 2], FP32, yarn included. Same bits on every machine. */
void oct_hf_inv_freq(const oct_hf_config *hf, float *inv_freq);

#endif
