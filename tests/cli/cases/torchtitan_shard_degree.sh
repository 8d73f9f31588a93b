# exit: 2
# stderr: octet: cannot shard over 4 ranks: the run has 1, * (fsdp_config.dp_shard_size, JOB.TOML:3, parallelism.data_parallel_shard_degree)
# The message names the key that was written; a name in capitals is a torchtitan job as well.
printf 'base = "train.toml"\n[parallelism]\ndata_parallel_shard_degree = 4\n' >JOB.TOML
octet train JOB.TOML
