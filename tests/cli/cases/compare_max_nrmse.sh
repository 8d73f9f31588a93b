# exit: 1
# stderr: octet: *NRMSE is 0.447*--max-nrmse*
npy_text make '<f4' '(2,)' 3f800000 40000000 >a.npy
npy_text make '<f4' '(2,)' 3f800000 40400000 >b.npy
octet compare a.npy b.npy --max-nrmse 0.448
octet compare a.npy b.npy --max-nrmse 0.447
