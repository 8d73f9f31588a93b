/* The config.json of a small DeepSeek-V3, whose plan is worked out by hand.
 *
 * Parameters: embedding and head [256, 64] each, the final norm 64. Layers: q [128, 64],
 * kv_a [96, 64], kv_b [128, 64], o [64, 64], norms 3 * 64; layer 0: gate and up [128, 64], down
 * [64, 128]; layer 1: gate_up [4, 128, 64], down [4, 64, 64], router [4, 64], shared 3 * [64, 64].
 */
#ifndef OCT_TESTS_SMALL_CONFIG_H
#define OCT_TESTS_SMALL_CONFIG_H

static const char small_config[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 256, \"hidden_size\": 64, "
    "\"intermediate_size\": 128, \"moe_intermediate_size\": 64, \"num_hidden_layers\": 2, "
    "\"first_k_dense_replace\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
    "\"n_routed_experts\": 4, \"n_shared_experts\": 1, \"q_lora_rank\": null, "
    "\"kv_lora_rank\": 64, \"qk_nope_head_dim\": 32, \"qk_rope_head_dim\": 32, "
    "\"v_head_dim\": 32, \"num_experts_per_tok\": 2, \"n_group\": 1, \"topk_group\": 1, "
    "\"norm_topk_prob\": true, \"routed_scaling_factor\": 1.0, \"max_position_embeddings\": 256, "
    "\"rope_interleave\": true, \"attention_bias\": false}";

#endif
