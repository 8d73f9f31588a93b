# exit: 2
# stderr: octet: cannot verify 'again.yaml': checkpoint.restore_from is 'old/checkpoints/step-2', none is required: * (--config)
printf 'base: train.yaml\ntraining:\n  train_iters: 25\ncheckpoint:\n  restore_from: old/checkpoints/step-2\n' >again.yaml
octet verify --config again.yaml --case bf16 --ranks 1 --out verify
