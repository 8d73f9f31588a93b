# exit: 2
# stderr: octet: cannot verify 'train.toml': found a TOML job, a YAML configuration is required: `octet train train.toml --print-config > FILE.yaml` makes one (--config)
octet verify --config train.toml --case bf16 --out verify
