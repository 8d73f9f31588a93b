# exit: 2
# stderr: octet: cannot verify 'narrow.yaml': fsdp_config.narrow_backward_gather is true, false is required: * (--config)
printf 'base: train.yaml\nfsdp_config:\n  narrow_backward_gather: true\ntraining:\n  train_iters: 25\n' >narrow.yaml
octet verify --config narrow.yaml --case mxfp8 --ranks 2 --out verify
