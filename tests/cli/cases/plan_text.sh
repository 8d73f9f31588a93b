# exit: 0
# stdout: parameters: *, * active per token, * in low precision
# stdout: replaced: 14 Linear, 1 experts
# stdout: *   3 hits  model.layers.0.mlp.\*_proj
# stdout: shards: *over 1 ranks, 0 replicated
octet plan train.yaml low_precision.enabled=true
