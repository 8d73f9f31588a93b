# exit: 2
# stderr: octet: wrong --ranks: found 'two', a whole number from 1 to 65536 is required
octet plan train.yaml --ranks two
