# exit: 0
# stdout: parameters: *
octet plan train.yaml 'dataset.path=a
b'
