# exit: 2
# stderr: octet: *'rope_type' is missing*
octet plan train.yaml model.config_overrides.rope_scaling.factor=4
