# exit: 2
# stderr: octet: --model and --config were both given, one of them is required
octet verify --config train.yaml --model slice --case bf16 --out verify
