# exit: 0
# Blocks down the columns restart at each group. Groups of 3, 0, 65 and 32 rows of one column, all 1:
# scale 1/256 (byte 77) for each block; nothing but 00 between the groups of the pairs layout.
check() { [ "$(npy_text show "$1" | tr '\n' ' ')" = "$2 " ] || { npy_text show "$1"; exit 1; }; }
ones=$(printf '3f800000%.0s' $(seq 100))
npy_text make '<f4' '(100, 1)' "$ones" >x.npy
octet quantize x.npy --format mxfp8 --axis -2 --groups 3,0,65,32 -o plain
check plain.scale.npy '|u1 (5, 1) 7777777777'
octet quantize x.npy --format mxfp8 --axis -2 --groups 3,0,65,32 --scale-layout pairs -o pairs
check pairs.scale.npy '|u1 (5, 1, 2) 77000000777777007700'
octet dequantize plain -o a.npy
octet dequantize pairs -o b.npy
cmp a.npy x.npy
cmp b.npy x.npy
json_check groups.0=3 groups.1=0 groups.2=65 groups.#=4 scale_layout=pairs scale_alg=1 <pairs.json
