# exit: 2
# stderr: octet: *OCTET_ISA*
OCTET_ISA=sse9 octet train train.yaml
