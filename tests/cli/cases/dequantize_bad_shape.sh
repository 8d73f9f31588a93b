# exit: 3
# stderr: octet: *axis -2*q.json*
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 >x.npy
octet quantize x.npy --format mxfp8 --axis -1 -o q
echo '{"schema": 1, "format": "mxfp8", "role": "input", "axis": -2, "shape": [6], "scale_layout": "plain"}' >q.json
octet dequantize q -o y.npy
