# exit: 2
# stderr: octet: *found '0', one of -1, -2*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format mxfp8 --axis 0 -o x
