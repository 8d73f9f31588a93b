# exit: 2
# stderr: octet: cannot launch 2 ranks: No such file or directory (--hostfile nowhere)
octet launch -n 2 --hostfile nowhere -- train train.yaml
