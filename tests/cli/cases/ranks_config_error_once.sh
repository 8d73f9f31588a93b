# exit: 2
# stderr: octet: *training.micro_batch_sise*
# Every rank finds the mistake, one tells it, all end with its code.
octet launch -n 2 -- train train.yaml training.micro_batch_sise=4 --run-dir out
