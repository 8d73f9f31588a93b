# exit: 3
# stderr: octet: *found uint8 [[]2, 1]*uint8 [[]1, 3] is required*q.scale.npy*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -1 -o q
octet quantize x.npy --format mxfp8 --axis -2 -o p
cp q.scale.npy p.scale.npy
mv p.json q.json
octet dequantize q -o y.npy
