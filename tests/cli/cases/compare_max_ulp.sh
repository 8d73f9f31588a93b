# exit: 1
# stderr: octet: *8388608*at most 4194303 *--max-ulp*
npy_text make '<f4' '(2,)' 3f800000 40000000 >a.npy
npy_text make '<f4' '(2,)' 3f800000 40400000 >b.npy
npy_text make '<f4' '(2,)' 3f800000 40800000 >b.npy
octet compare a.npy b.npy --max-ulp 8388608
octet compare a.npy b.npy --max-ulp 4194303
