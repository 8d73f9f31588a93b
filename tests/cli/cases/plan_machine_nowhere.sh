# exit: 2
# stderr: octet: *nowhere.yaml*
octet plan train.yaml --machine nowhere.yaml
