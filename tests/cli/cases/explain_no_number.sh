# exit: 2
# stderr: octet: *found '1.2.3'*
octet explain --format hif8 1.2.3
