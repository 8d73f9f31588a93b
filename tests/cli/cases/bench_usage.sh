# exit: 2
# stderr: octet: *gem*gemm*
octet bench gem
