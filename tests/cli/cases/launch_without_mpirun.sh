# exit: 6
# stderr: octet: cannot launch 2 ranks: '/nowhere/mpirun' cannot be run, mpirun is required (--mpirun)
octet launch -n 2 --mpirun /nowhere/mpirun -- train train.yaml
