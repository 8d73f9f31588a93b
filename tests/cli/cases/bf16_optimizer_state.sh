# exit: 2
# stderr: octet: *optimizer.state_dtype*
octet train train.yaml optimizer.state_dtype=bfloat16
