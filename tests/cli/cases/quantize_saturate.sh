# exit: 0
# The NPU's mode: Inf gives the largest value and NaN zero; else both stay visible.
check() { [ "$(npy_text show "$1" | tr '\n' ' ')" = "$2 " ] || { npy_text show "$1"; exit 1; }; }
npy_text make '<f4' '(1, 4)' 7f800000 ff800000 7fc00000 3f800000 >x.npy
octet quantize x.npy --format hif8 --axis -1 -o a
check a.data.npy '|u1 (1, 4) 6fef8008'
octet quantize x.npy --format hif8 --axis -1 --saturate -o b
check b.data.npy '|u1 (1, 4) 6eee0008'
json_check saturate=true <b.json
