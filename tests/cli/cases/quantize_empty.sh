# exit: 0
# No elements: scales of the shape that the layout gives, 1.0 for HiF8, and back.
check() { [ "$(npy_text show "$1" | tr '\n' ' ')" = "$2 " ] || { npy_text show "$1"; exit 1; }; }
npy_text make '<f4' '(72057594037927935, 0)' >x.npy
octet quantize x.npy --format mxfp8 --axis -2 -o x
check x.scale.npy '|u1 (2251799813685248, 0) '
octet dequantize x -o y.npy
cmp x.npy y.npy
npy_text make '<f4' '(2, 0, 3)' >x.npy
octet quantize x.npy --format hif8 --axis -1 --role weight -o x
check x.scale.npy '<f4 (2,) 3f8000003f800000'
octet dequantize x -o y.npy
cmp x.npy y.npy
