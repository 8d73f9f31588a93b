# exit: 3
# stderr: octet: *tokens.bin*
head -c 100 text.txt >tokens.bin
octet train train.yaml dataset.path=tokens.bin
