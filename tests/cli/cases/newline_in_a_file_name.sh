# exit: 2
# stderr: octet: *(a\\nb.yaml)
octet train 'a
b.yaml'
