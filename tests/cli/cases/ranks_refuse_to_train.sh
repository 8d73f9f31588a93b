# exit: 1
# stderr: octet: cannot train on several ranks: found 2 ranks, 1 is required until weights can be sharded
# Once, from rank 0; no rank trains, and the exit code comes through the launcher.
octet launch -n 2 -- train train.yaml --run-dir out 2>launched || code=$?
grep -v '^launch: .*OMP_NUM_THREADS=[0-9]* .*-n 2 --oversubscribe --bind-to none .* train train.yaml --run-dir out$' launched >&2 || true
[ ! -e out ]
exit $code
