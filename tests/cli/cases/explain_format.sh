# exit: 2
# stderr: octet: *found 'fp4', one of hif8, e4m3, e8m0, bf16*
octet explain --format fp4 1
