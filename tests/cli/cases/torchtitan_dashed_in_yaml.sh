# exit: 2
# stderr: octet: cannot read override: '--training.train_iters' belongs to torchtitan jobs (\*.toml), key.path=value is required
octet train train.yaml --training.train_iters 4
