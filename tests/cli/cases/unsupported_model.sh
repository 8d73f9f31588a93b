# exit: 2
# stderr: octet: *attention_dropout*0.5*
octet train train.yaml model.config_overrides.attention_dropout=0.5
