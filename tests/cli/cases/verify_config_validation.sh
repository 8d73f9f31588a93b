# exit: 0
# stdout: 16.6 *passed*
# Forward passes of validation are no work of training that is done twice.
printf 'base: train.yaml\ndataset:\n  validation:\n    every: 1\n    path: text.txt\n    steps: 1\n' >own.yaml
octet verify --config own.yaml --case hif8_current --quick --ranks 1 --out verify
