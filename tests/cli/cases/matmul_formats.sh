# exit: 2
# stderr: octet: *formats are hif8 and mxfp8*(a, b)
npy_text make '<f4' '(2, 2)' 3f800000 40000000 40400000 40800000 >x.npy
octet quantize x.npy --format hif8 --axis -1 -o a
octet quantize x.npy --format mxfp8 --axis -1 -o b
octet matmul a b --layout NT -o y.npy
