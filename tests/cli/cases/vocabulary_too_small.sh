# exit: 3
# stderr: octet: *256*
octet train train.yaml model.config_overrides.vocab_size=256
