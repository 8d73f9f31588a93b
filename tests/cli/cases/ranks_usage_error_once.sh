# exit: 2
# stderr: octet: unknown option '--run-dri'
octet launch -n 3 -- train train.yaml --run-dri out 2>told || code=$?
grep -a '^octet: ' told >&2
exit $code
