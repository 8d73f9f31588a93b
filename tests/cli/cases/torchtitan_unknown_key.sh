# exit: 2
# stderr: octet: Invalid field names in training data: {'seq_length'}: the nearest known key is training.seq_len (job.toml:2)
printf '[training]\nseq_length = 3\n' >job.toml
octet train train.toml job.toml
