# exit: 2
# stderr: octet: cannot verify 'wide.yaml': model.torch_dtype is float32, bfloat16 is required for --case bf16 (--config)
printf 'base: train.yaml\nmodel:\n  torch_dtype: float32\ntraining:\n  train_iters: 25\n' >wide.yaml
octet verify --config wide.yaml --case bf16 --ranks 1 --out verify
