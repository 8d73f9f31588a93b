# exit: 2
# stderr: octet: cannot mix dialects: 'job.toml' and 'train.yaml', files that all or none of them end in .toml are required (job.toml:1)
printf 'base = "train.yaml"\n' >job.toml
octet train job.toml
