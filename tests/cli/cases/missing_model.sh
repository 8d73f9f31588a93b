# exit: 2
# stderr: octet: *elsewhere*
octet train train.yaml model.config_name_or_path=elsewhere
