# exit: 1
# stderr: octet: *cosine is 0.98*at least 0.999*
npy_text make '<f4' '(2,)' 3f800000 40000000 >a.npy
npy_text make '<f4' '(2,)' 3f800000 40400000 >b.npy
octet compare a.npy b.npy --min-cosine 0.98
octet compare a.npy b.npy --min-cosine 0.999
