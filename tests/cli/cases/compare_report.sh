# exit: 0
# stdout: elements            6, shape [[]2, 3], float32 and float32
# stdout: exact matches       2
# stdout: first difference    at [[]0, 1]
# stdout: largest error       1 at [[]0, 2]
# stdout: NRMSE               0.2*
# stdout: NaN                 1 and 1
# stdout: non-finite, unlike  0
# stdout: ULP 0               3
# stdout: ULP 1               1
# stdout: ULP 2^21+1 to 2^22* 1
npy_text make '<f4' '(2, 3)' 3f800000 3f800000 40000000 40800000 7fc00000 00000000 >a.npy
npy_text make '<f4' '(2, 3)' 3f800000 3f800001 40400000 40800000 7fc00001 80000000 >b.npy
octet compare a.npy b.npy
