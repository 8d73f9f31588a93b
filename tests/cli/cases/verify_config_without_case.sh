# exit: 2
# stderr: octet: 0 cases with --config, --case bf16, mxfp8 or hif8_current is required
octet verify --config train.yaml --out verify
