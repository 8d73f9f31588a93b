# exit: 0
# The same numbers in every dtype and byte order, through a pipe as well.
check() { [ "$(npy_text show "$1" | tr '\n' ' ')" = "$2 " ] || { npy_text show "$1"; exit 1; }; }
npy_text make '<f4' '(2, 3)' 3f800000 c0000000 40600000 00000000 3e800000 80000000 >f4.npy
npy_text make '>f4' '(2, 3)' 3f800000 c0000000 40600000 00000000 3e800000 80000000 >f4b.npy
npy_text make '<f2' '(2, 3)' 3c00 c000 4300 0000 3400 8000 >f2.npy
npy_text make '>f2' '(2, 3)' 3c00 c000 4300 0000 3400 8000 >f2b.npy
npy_text make '<f8' '(2, 3)' 3ff0000000000000 c000000000000000 400c000000000000 \
    0000000000000000 3fd0000000000000 8000000000000000 >f8.npy
npy_text make '<u2' '(2, 3)' 3f80 c000 4060 0000 3e80 8000 >bf16.npy
for file in f4 f4b f2 f2b f8 bf16; do
    dtype=f32
    [ $file = bf16 ] && dtype=bf16
    octet quantize $file.npy --format bf16 --axis -1 --dtype $dtype -o out
    check out.data.npy '<u2 (2, 3) 3f80c00040600000''3e808000'
    [ ! -e out.scale.npy ]
    octet quantize - --format e4m3 --axis -1 --dtype $dtype -o out <$file.npy
    check out.data.npy '|u1 (2, 3) 38c046002880'
done
octet dequantize out -o - >values.npy
cmp values.npy f4.npy
