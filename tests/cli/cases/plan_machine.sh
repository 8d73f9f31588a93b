# exit: 0
octet plan train.yaml low_precision.enabled=true training.threads=1 --ranks 2 \
    --machine "$SOURCE_DIR/configs/machines/epyc-zen5.yaml" --json >plan.json
json_check schema=1 machine.threads_per_rank=1 'machine.ranks_per_node>0' 'step_seconds.products>0' \
    'step_seconds.experts>0' 'step_seconds.head>0' 'step_seconds.attention>0' \
    'step_seconds.elementwise>0' 'step_seconds.pack>0' 'step_seconds.optimizer>0' \
    'step_seconds.all_gather>0' 'step_seconds.reduce_scatter>0' 'step_seconds.total>0' \
    'tokens_per_second>0' 'communication_share>0' 'communication_share<1' <plan.json
