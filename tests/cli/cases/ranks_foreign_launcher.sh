# exit: 1
# stderr: octet: *launched (PMI_SIZE), a launcher of the same MPI is required
# What mpirun of another MPI says: every rank would train alone.
PMI_SIZE=4 PMI_RANK=2 octet train train.yaml --run-dir out || code=$?
[ ! -e out ]
exit $code
