# exit: 3
# stderr: octet: *member 'axis' is not -1 or -2*q.json*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -1 -o q
echo '{"schema": 1, "format": "mxfp8", "role": "input", "axis": 3}' >q.json
octet dequantize q -o y.npy
