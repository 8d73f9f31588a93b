# exit: 2
# stderr: octet: cannot verify 'short.yaml': training.train_iters is 24, at least 25 are required (--config)
printf 'base: train.yaml\ntraining:\n  train_iters: 24\n' >short.yaml
octet verify --config short.yaml --case bf16 --ranks 1 --out verify
