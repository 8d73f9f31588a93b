# exit: 2
# stderr: octet: cannot split the global batch: 5 sequences*(training.global_batch_size, training.global_batch_size=5)
octet train train.yaml training.global_batch_size=5
