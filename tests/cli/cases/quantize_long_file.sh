# exit: 3
# stderr: octet: *holds 25 bytes*24 are required*x.npy*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
printf x >>x.npy
octet quantize x.npy --format mxfp8 --axis -1 -o x
