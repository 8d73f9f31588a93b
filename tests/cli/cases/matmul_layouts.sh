# exit: 0
# x = [[1, 2], [3, 4]] in every format and layout; bf16 is the default of the product.
check() { [ "$(npy_text show "$1" | tr '\n' ' ')" = "$2 " ] || { npy_text show "$1"; exit 1; }; }
npy_text make '<f4' '(2, 2)' 3f800000 40000000 40400000 40800000 >x.npy
for format in mxfp8 e4m3 bf16; do
    octet quantize x.npy --format $format --axis -1 -o row
    octet quantize x.npy --format $format --axis -2 -o col
    octet matmul row col --layout NN -o out.npy
    check out.npy '<u2 (2, 2) 40e04120417041b0' # 7 10 / 15 22
    octet matmul row row --layout NT --dtype f32 -o - >out.npy
    check out.npy '<f4 (2, 2) 40a00000413000004130000041c80000' # 5 11 / 11 25
    octet matmul col col --layout TN --dtype f32 -o out.npy
    check out.npy '<f4 (2, 2) 41200000416000004160000041a00000' # 10 14 / 14 20
    octet matmul col col --layout TN --groups 0,1,1 --dtype f32 -o out.npy 2>err || {
        # blocks of axis -2 have to restart at the groups of the product
        [ $format = mxfp8 ]
        grep -q 'quantized in 0 groups, 3 are required' err
        octet quantize x.npy --format $format --axis -2 --groups 0,1,1 -o col
        octet matmul col col --layout TN --groups 0,1,1 --dtype f32 -o out.npy
    }
    check out.npy "<f4 (3, 2, 2) 00000000000000000000000000000000""3f800000400000004000000040800000""41100000414000004140000041800000"
done
