# exit: 3
# stderr: octet: *found '<i4'*is required*x.npy*
npy_text make '<i4' '(1,)' 00000001 >x.npy
octet quantize x.npy --format hif8 --axis -1 -o x
