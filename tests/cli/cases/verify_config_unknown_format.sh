# exit: 2
# stderr: octet: unknown --case: found 'fp4', one of bf16, mxfp8, hif8_current is required
octet verify --config train.yaml --case fp4 --out verify
