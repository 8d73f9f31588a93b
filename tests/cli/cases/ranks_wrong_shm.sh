# exit: 2
# stderr: octet: cannot set up communication: found 'yes', 0, 1 or the number of ranks that share memory is required (OCTET_SHM)
OCTET_SHM=yes octet train train.yaml
