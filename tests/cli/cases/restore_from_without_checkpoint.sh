# exit: 4
# stderr: octet: *no checkpoint in 'model'*checkpoint.restore_from*
octet train train.yaml --run-dir run checkpoint.restore_from=model
