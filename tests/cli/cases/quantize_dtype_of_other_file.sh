# exit: 2
# stderr: octet: *found float32*uint16 is required*x.npy*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format hif8 --axis -1 --dtype bf16 -o x
