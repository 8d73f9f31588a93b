# exit: 0
# stdout: exact matches       2
# stdout: cosine              1
npy_text make '<f4' '(2,)' 7fc00000 3f800000 >a.npy
octet compare a.npy - <a.npy --max-different 0 --max-error 0 --max-ulp 0 --max-nrmse 0 --min-cosine 1
