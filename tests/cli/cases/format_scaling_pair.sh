# exit: 2
# stderr: octet: *hif8*mx_block*
octet train train.yaml low_precision.enabled=true low_precision.format=hif8
