# exit: 0
# stdout: nothing to do: step 4 of 4 is done
octet train train.yaml --run-dir run >/dev/null
cp run/metrics.jsonl before
octet train train.yaml --run-dir run
cmp before run/metrics.jsonl
