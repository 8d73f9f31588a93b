# exit: 2
# stderr: octet: unknown option '--resum'
octet train train.yaml --resum latest
