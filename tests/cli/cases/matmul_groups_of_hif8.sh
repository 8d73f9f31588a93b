# exit: 2
# stderr: octet: *quantized in 0 groups, 2 are required
npy_text make '<f4' '(2, 2)' 3f800000 40000000 40400000 40800000 >x.npy
npy_text make '<f4' '(2, 1, 2)' 3f800000 3f800000 3f800000 3f800000 >w.npy
octet quantize x.npy --format hif8 --axis -1 -o x
octet quantize w.npy --format hif8 --axis -1 --role weight -o w
octet matmul x w --layout NT --groups 1,1 -o y.npy
