# exit: 2
# stderr: octet: *found 'TT', one of NN, NT, TN is required*
octet matmul a b --layout TT -o y.npy
