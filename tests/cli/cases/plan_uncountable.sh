# exit: 7
# stderr: octet: cannot plan memory: * GB of states and activations, at most * GB are required (*training.seq_length)
octet plan train.yaml training.global_batch_size=2147483647 training.micro_batch_size=2147483647 training.seq_length=2147483647
