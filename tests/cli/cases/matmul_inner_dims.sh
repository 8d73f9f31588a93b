# exit: 2
# stderr: octet: *contracts 2 with 3*(a, b)
npy_text make '<f4' '(2, 2)' 3f800000 40000000 40400000 40800000 >x.npy
npy_text make '<f4' '(1, 3)' 3f800000 3f800000 3f800000 >b.npy
octet quantize x.npy --format hif8 --axis -1 -o a
octet quantize b.npy --format hif8 --axis -1 -o b
octet matmul a b --layout NT -o y.npy
