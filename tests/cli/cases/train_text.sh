# exit: 0
# stdout: model: * M parameters*
# stdout: low precision: mxfp8_e4m3 with mx_block scaling, 16 weights in 8 bits
# stdout: *model.layers.\*.mlp.experts: 1 hits
# stdout:   in high precision: 1 Linear, 0 experts, and the products inside 1 routers and 2 attentions
# stdout: step 1/4  loss 5.*
# stdout: step 4/4  loss 5.*
# stdout: saved checkpoint step-4
octet train train.yaml low_precision.enabled=true --run-dir run
head -n 1 run/config.yaml | grep -q '^# octet run configuration'
json_check schema=1 kind=train skipped=false tokens=128 'loss>0' 'grad_norm>0' 'lr>0' \
    'peak_memory_bytes>0' refreshed_weights=16 'seconds.matmul=*' <run/metrics.jsonl
[ "$(wc -l <run/metrics.jsonl)" = 4 ]
