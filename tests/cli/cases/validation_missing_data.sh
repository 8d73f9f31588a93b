# exit: 3
# stderr: octet: *no-such-text*
octet train train.yaml dataset.validation.path=no-such-text dataset.validation.every=1
