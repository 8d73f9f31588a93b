# exit: 2
# stderr: octet: *accelerator.tp_size*
octet train train.yaml accelerator.tp_size=2
