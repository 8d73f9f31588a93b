# exit: 2
# stderr: octet: *holds 'config.yaml' and no run*
mkdir run
mkfifo run/config.yaml
octet train train.yaml --run-dir run
