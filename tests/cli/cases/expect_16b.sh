# exit: 2
# stderr: octet: *vocab_size*257*
octet train train.yaml model.expect=deepseek_v3_16b
