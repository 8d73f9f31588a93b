# exit: 2
# stderr: octet: *blocks of the right operand run along axis -1, axis -2 is required for --layout NN (x)
npy_text make '<f4' '(2, 2)' 3f800000 40000000 40400000 40800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -1 -o x
octet matmul x x --layout NN -o y.npy || { status=$?; [ ! -e y.npy ]; exit "$status"; }
