# exit: 2
# stderr: octet: *found 'fp4', one of mxfp8, hif8, e4m3, bf16 is required*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format fp4 --axis -1 -o x
