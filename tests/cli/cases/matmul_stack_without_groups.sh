# exit: 2
# stderr: octet: *right operand has shape*2 dims are required (w)
npy_text make '<f4' '(2, 2)' 3f800000 40000000 40400000 40800000 >x.npy
npy_text make '<f4' '(2, 1, 2)' 3f800000 3f800000 3f800000 3f800000 >w.npy
octet quantize x.npy --format mxfp8 --axis -1 -o x
octet quantize w.npy --format mxfp8 --axis -1 -o w
octet matmul x w --layout NT -o y.npy
