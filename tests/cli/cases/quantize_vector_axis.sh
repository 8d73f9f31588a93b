# exit: 2
# stderr: octet: *axis -2*[[]1]*x.npy*
npy_text make '<f4' '(1,)' 3f800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -2 -o x
