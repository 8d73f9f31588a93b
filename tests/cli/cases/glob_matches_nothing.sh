# exit: 3
# stderr: octet: *no-\*.md*
octet train train.yaml 'dataset.path=no-*.md'
