# exit: 1
# stderr: octet: cannot write to the standard output: *
# The reader leaves after one line; the run and its checkpoint do not depend on it.
mkfifo pipe
head -n 1 pipe >/dev/null &
status=0
octet train train.yaml training.train_iters=20 --run-dir run >pipe || status=$?
octet checkpoint verify run/checkpoints/step-20 >/dev/null
exit "$status"
