# exit: 2
# stderr: octet: *wrong --shape: found '48x0x96', TxIxO with 1 to 65536 each is required*
octet bench gemm --shape 48x0x96
