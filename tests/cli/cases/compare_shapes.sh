# exit: 2
# stderr: octet: *[[]2] and [[]1, 2]*a.npy, b.npy*
npy_text make '<f4' '(2,)' 3f800000 40000000 >a.npy
npy_text make '<f4' '(2,)' 3f800000 40400000 >b.npy
npy_text make '<f4' '(1, 2)' 3f800000 40000000 >b.npy
octet compare a.npy b.npy
