# exit: 4
# stderr: octet: cannot go on from the checkpoint: it was saved with format bfloat16, this run has mxfp8_e4m3 (train_state.format)
octet train train.yaml --run-dir run >/dev/null
octet train train.yaml --run-dir run low_precision.enabled=true
