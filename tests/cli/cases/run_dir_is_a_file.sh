# exit: 2
# stderr: octet: *text.txt*
octet train train.yaml --run-dir text.txt
