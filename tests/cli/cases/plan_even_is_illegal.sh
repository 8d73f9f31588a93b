# exit: 2
# stderr: octet: cannot shard 'model.embed_tokens.weight' \[257, 64\]: 257 rows over 2 ranks, *(or set fsdp_config.fallback_to_unsharded)
octet plan train.yaml --ranks 2 fsdp_config.shard=even
