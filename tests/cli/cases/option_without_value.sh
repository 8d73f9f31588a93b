# exit: 2
# stderr: octet: no value after --run-dir, one is required
octet train train.yaml --run-dir
