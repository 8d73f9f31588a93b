# exit: 0
# HiF8 codes 17 (3.75) and 20 (4) are neighbours, as are 0f and 10; 08 (1) and 1f (0.9375) too.
# stdout: ULP 1               3
# stdout: largest error       0.25 at [[]0]
npy_text make '|u1' '(3,)' 17 0f 08 >a.npy
npy_text make '|u1' '(3,)' 20 10 1f >b.npy
octet compare a.npy b.npy --format hif8 --max-ulp 1 --max-error 0.25
