# exit: 0
# More rows than are in memory at a time (2^22 elements) give what their parts give, and one HiF8
# scale. The elements are text, read as BF16: finite and of many magnitudes.
cat text.txt text.txt | head -c 8192 >block
for _ in 1 2 3 4 5; do
    cat block block block block >next
    mv next block
done # 2^23 bytes
npy_text make '<u2' '(4194304, 1)' >head.npy
cat block >>head.npy
npy_text make '<u2' '(100, 1)' >tail.npy
head -c 200 text.txt >>tail.npy
npy_text make '<u2' '(4194404, 1)' >all.npy
cat block >>all.npy
head -c 200 text.txt >>all.npy
for part in head tail all; do
    octet quantize $part.npy --dtype bf16 --format mxfp8 --axis -2 -o $part
    for file in data scale; do
        tail -c +129 $part.$file.npy >$part.$file
    done
    octet dequantize $part -o - | tail -c +129 >$part.value
done
for file in data scale value; do
    cat head.$file tail.$file | cmp - all.$file
done
octet quantize all.npy --dtype bf16 --format hif8 --axis -1 -o tall
npy_text make '<u2' '(4, 1048601)' >wide.npy
tail -c +129 all.npy >>wide.npy
octet quantize wide.npy --dtype bf16 --format hif8 --axis -1 -o wide
cmp tall.scale.npy wide.scale.npy
tail -c +129 tall.data.npy >tall.data
tail -c +129 wide.data.npy | cmp - tall.data
