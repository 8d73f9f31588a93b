# exit: 1
# stderr: octet: *different elements is 1, at most 0*
npy_text make '<f4' '(2,)' 3f800000 40000000 >a.npy
npy_text make '<f4' '(2,)' 3f800000 40400000 >b.npy
octet compare a.npy b.npy --max-different 0
