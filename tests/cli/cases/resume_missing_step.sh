# exit: 4
# stderr: octet: *step-3*
octet train train.yaml --run-dir run >/dev/null
octet train train.yaml --run-dir run --resume step-3
