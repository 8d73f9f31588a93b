/* Where the model finds its modules and parameters. Internal to model/deepseek_v3.
 *
 * Modules are reached through their slots, because a replacement swaps the pointer in the slot;
 * parameters and buffers keep their identity. */
#ifndef OCT_MODEL_DEEPSEEK_V3_LAYOUT_H
#define OCT_MODEL_DEEPSEEK_V3_LAYOUT_H

#include "model/deepseek_v3/deepseek_v3.h"

/* down(silu(gate x) * up x): a dense layer's block or the shared experts. */
typedef struct dsv3_mlp {
    oct_module **gate, **up, **down;
    int64_t width; /* F */
} dsv3_mlp;

typedef struct dsv3_attention {
    oct_module **q;          /* NULL with q LoRA */
    oct_module **q_a, **q_b; /* NULL without */
    oct_module **kv_a, **kv_b, **o;
    oct_param *q_a_norm, *kv_a_norm;
} dsv3_attention;

typedef struct dsv3_moe {
    oct_module **experts;
    oct_module *gate;  /* owner of the router's weight */
    oct_param *router; /* [E,H] */
    oct_buffer *bias;  /* e_score_correction_bias [E] */
    int64_t *counts;   /* [E], part of model->counts */
} dsv3_moe;

typedef struct dsv3_layer {
    int64_t index;
    oct_param *input_norm, *post_norm;
    dsv3_attention attention;
    bool has_experts;
    dsv3_moe moe; /* if has_experts */
    dsv3_mlp mlp; /* dense block, or the shared experts */
} dsv3_layer;

struct oct_dsv3 {
    oct_hf_config hf;
    oct_module_tree *tree;
    oct_param *embedding, *norm;
    oct_module **head;
    dsv3_layer *layers;
    int64_t moe_layers;
    int64_t *counts;           /* [moe_layers * E] */
    int64_t *unit_first_param; /* [units + 1] */
    float *inv_freq;           /* [rope/2] */
    float rope_factor, softmax_scale;
    const oct_dsv3_observer *observer;
};

#endif
