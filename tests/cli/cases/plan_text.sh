# exit: 0
# stdout: parameters: *, * active per token, * in low precision
# stdout: replaced: 14 Linear, 1 experts
# stdout: *   3 hits  model.layers.0.mlp.\*_proj
# stdout: products in high precision: 1 Linear, 0 experts, 1 router, 4 attention
# stdout: shards: *over 1 ranks, 0 replicated
octet plan train.yaml low_precision.enabled=true
