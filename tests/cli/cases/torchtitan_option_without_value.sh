# exit: 2
# stderr: octet: *option '--training.steps' needs a value*
octet train train.toml --training.steps
