# exit: 2
# stderr: octet: *no case of bench gemm is called so: found '77x77'*
octet bench gemm --case 77x77
