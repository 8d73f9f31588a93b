# exit: 3
# stderr: octet: cannot open 'x.json'*
# A run that fails between its files leaves no description: a mix of old and new is not readable.
npy_text make '<f4' '(1, 2)' 3f800000 40000000 >a.npy
npy_text make '<f4' '(1, 2)' 3f800000 46000000 >b.npy
octet quantize a.npy --format hif8 --axis -1 -o x
octet dequantize x -o y.npy
mkdir x.json.tmp # where the .json is written first
status=0
octet quantize b.npy --format hif8 --axis -1 --saturate -o x 2>error || status=$?
[ $status = 2 ]
octet dequantize x -o y.npy
