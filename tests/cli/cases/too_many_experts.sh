# exit: 7
# stderr: octet: out of memory: *n_routed_experts*
octet plan train.yaml 'model.config_overrides={n_routed_experts: 1073741824, num_hidden_layers: 10000}'
