# exit: 2
# stderr: octet: *training.micro_batch_sise*
# Every rank finds the mistake, one tells it, all end with its code. What the launcher says is its own.
octet launch -n 2 -- train train.yaml training.micro_batch_sise=4 --run-dir out 2>told || code=$?
grep -a '^octet: ' told >&2
exit $code
