# exit: 2
# stderr: octet: *--scale-layout pairs*mxfp8 is required*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format hif8 --axis -1 --scale-layout pairs -o x
