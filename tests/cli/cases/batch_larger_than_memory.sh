# exit: 7
# stderr: octet: out of memory: *
octet train train.yaml training.micro_batch_size=1000000000 training.global_batch_size=1000000000
