# exit: 3
# stderr: octet: *No such file*q.scale.npy*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -1 -o q
rm q.scale.npy
octet dequantize q -o y.npy || { status=$?; [ ! -e y.npy ]; exit "$status"; }
