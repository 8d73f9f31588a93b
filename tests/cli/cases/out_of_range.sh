# exit: 2
# stderr: octet: *global_batch_size*
octet train train.yaml training.global_batch_size=0
