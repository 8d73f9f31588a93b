# exit: 2
# stderr: octet: *codes of e4m3: found float32, uint8 is required (a.npy)
npy_text make '<f4' '(2,)' 3f800000 40000000 >a.npy
npy_text make '<f4' '(2,)' 3f800000 40400000 >b.npy
octet compare a.npy b.npy --format e4m3
