# exit: 3
# stderr: octet: *holds 20 bytes*24 are required*cut.npy*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
head -c 148 x.npy >cut.npy
octet quantize cut.npy --format mxfp8 --axis -1 -o x
