# exit: 2
# stderr: octet: *found 0*1 are required*
octet explain --format hif8
