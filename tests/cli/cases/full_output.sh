# exit: 1
# stderr: octet: cannot write to the standard output: *
octet plan train.yaml --json >/dev/full
