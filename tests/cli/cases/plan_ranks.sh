# exit: 0
octet plan train.yaml --ranks 2 --json >plan.json
json_check shards.0.rows_per_rank='[128,129]' 'communication_bytes_per_step.all_gather>0' \
    'bytes_per_rank.staging>0' <plan.json
