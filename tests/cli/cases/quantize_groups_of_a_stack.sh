# exit: 2
# stderr: octet: *2 dims are required*x.npy*
npy_text make '<f4' '(1, 1, 1)' 3f800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -2 --groups 1 -o x
