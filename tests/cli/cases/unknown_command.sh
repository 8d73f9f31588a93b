# exit: 2
# stderr: octet: unknown command 'trian', one of train, *bench is required
octet trian train.yaml
