# exit: 0
# Rule 0 clips 959.5632 to 896, rule 1 does not (docs/spec/mxfp8.md).
check() { [ "$(npy_text show "$1" | tail -n 1)" = "$2" ] || { npy_text show "$1"; exit 1; }; }
npy_text make '<f4' '(2,)' 446fe40c 446f4000 >x.npy
octet quantize x.npy --format mxfp8 --axis -1 --scale-alg 0 -o a
check a.scale.npy 80
octet dequantize a -o a.npy
check a.npy 4460000044600000
octet quantize x.npy --format mxfp8 --axis -1 -o b
check b.scale.npy 81
octet dequantize b -o b.npy
check b.npy 4470000044700000
