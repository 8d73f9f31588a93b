# exit: 2
# stderr: octet: cannot start afresh: the run directory has 1 checkpoints, *(--resume none, run)
octet train train.yaml --run-dir run >/dev/null
octet train train.yaml --run-dir run --resume none
