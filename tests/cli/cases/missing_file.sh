# exit: 2
# stderr: octet: *nowhere.yaml*
octet train nowhere.yaml
