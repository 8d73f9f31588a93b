# exit: 2
# stderr: octet: *found uint16*--dtype bf16*x.npy*
npy_text make '<u2' '(1,)' 3f80 >x.npy
octet quantize x.npy --format hif8 --axis -1 -o x
