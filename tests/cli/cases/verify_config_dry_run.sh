# exit: 2
# stderr: octet: --dry-run and --config were both given, a --model is required for a dry run: *
octet verify --config train.yaml --dry-run --out verify
