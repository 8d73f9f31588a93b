# exit: 3
# stderr: octet: *b.json*
npy_text make '<f4' '(2, 2)' 3f800000 40000000 40400000 40800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -1 -o a
octet matmul a b --layout NT -o y.npy
