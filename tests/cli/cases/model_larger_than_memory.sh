# exit: 7
# stderr: octet: out of memory: *
octet train train.yaml model.config_overrides.hidden_size=1073741824 --run-dir run
