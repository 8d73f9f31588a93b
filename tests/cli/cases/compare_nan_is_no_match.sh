# exit: 1
# stderr: octet: *largest error is inf*
npy_text make '<f4' '(1,)' 3f800000 >a.npy
npy_text make '<f4' '(1,)' 7fc00000 >b.npy
octet compare a.npy b.npy --max-error 1e30
