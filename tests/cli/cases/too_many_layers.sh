# exit: 2
# stderr: octet: *num_hidden_layers*from 1 to 16384*
octet plan train.yaml model.config_overrides.num_hidden_layers=1000000
