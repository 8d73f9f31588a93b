# exit: 0
# One HiF8 scale per matrix of a stacked weight, one in all for other roles; 224 for gradients.
check() { [ "$(npy_text show "$1" | tr '\n' ' ')" = "$2 " ] || { npy_text show "$1"; exit 1; }; }
npy_text make '<f4' '(2, 1, 2)' 41700000 3f800000 42700000 bf800000 >x.npy # 15 1 / 60 -1
octet quantize x.npy --format hif8 --axis -1 --role weight -o w
check w.scale.npy '<f4 (2,) 3f80000040800000'
check w.data.npy '|u1 (2, 1, 2) 2f082fb0' # -1/4 is code b0
octet quantize x.npy --format hif8 --axis -1 -o i
check i.scale.npy '<f4 () 40800000'
json_check schema=1 format=hif8 axis=-1 role=input groups=null shape.0=2 shape.2=2 shape.#=3 <i.json
npy_text make '<f4' '(1, 2)' 43600000 3f800000 >g.npy # 224 1
octet quantize g.npy --format hif8 --axis -1 --role grad -o g
check g.scale.npy '<f4 () 3f800000'
