# exit: 0
octet plan train.yaml low_precision.enabled=true --json >plan.json
json_check schema=1 'parameters_total>100000' 'parameters_active<120000' replaced.linear=14 \
    replaced.experts=1 high_precision.linear=1 high_precision.experts=0 \
    high_precision.router=1 high_precision.attention=4 rules.#=7 rules.0.hits=2 'shards.0.fqn=model.embed_tokens.weight' \
    shards.0.shape='[257,64]' shards.0.rows_per_rank='[257]' shards.0.replicated=false \
    'bytes_per_rank.master>0' 'bytes_per_rank.moments>0' 'bytes_per_rank.low_precision>0' \
    'bytes_per_rank.high_precision>0' 'bytes_per_rank.gradients>0' bytes_per_rank.staging=0 \
    bytes_per_rank.unsharded=0 'bytes_per_rank.panels>0' 'bytes_per_rank.activations>0' \
    'bytes_per_rank.peak>0' communication_bytes_per_step.all_gather=0 \
    communication_bytes_per_step.reduce_scatter=0 'flops_per_token.megatron>0' \
    'flops_per_token.torchtitan>0' <plan.json
