# exit: 2
# stderr: octet: *found '1,-1'*--groups*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -2 --groups 1,-1 -o x
