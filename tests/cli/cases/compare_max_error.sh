# exit: 1
# stderr: octet: *largest error is 1, at most 0.5 is required (--max-error; a.npy, b.npy)
npy_text make '<f4' '(2,)' 3f800000 40000000 >a.npy
npy_text make '<f4' '(2,)' 3f800000 40400000 >b.npy
octet compare a.npy b.npy --max-error 1
octet compare a.npy b.npy --max-error 0.5
