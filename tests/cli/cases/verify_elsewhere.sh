# exit: 2
# stderr: octet: cannot find 'configs/verify.yaml' here: octet verify is required to run in the folder of the project, *
octet verify --dry-run --ranks 1 --out verify
