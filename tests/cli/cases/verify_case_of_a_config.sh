# exit: 2
# stderr: octet: cannot run case 16.6 of a model: *--config FILE --case bf16, mxfp8 or hif8_current* (--case)
octet verify --case 16.6 --ranks 1 --out verify
