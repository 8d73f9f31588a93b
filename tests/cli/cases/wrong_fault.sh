# exit: 2
# stderr: octet: *OCTET_FAULT*
OCTET_FAULT=trainer.gradient octet train train.yaml
