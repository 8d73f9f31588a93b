# exit: 2
# stderr: octet: *option '--model.hf_config' needs a value*
octet train train.toml --model.hf_config --print-config
