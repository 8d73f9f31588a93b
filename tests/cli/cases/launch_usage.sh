# exit: 2
# stderr: octet: wrong -n: found '0', a whole number from 1 to 65536 is required
octet launch -n 0 -- train train.yaml
