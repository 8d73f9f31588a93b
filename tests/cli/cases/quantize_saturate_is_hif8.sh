# exit: 2
# stderr: octet: *--saturate*hif8 is required*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -1 --saturate -o x
