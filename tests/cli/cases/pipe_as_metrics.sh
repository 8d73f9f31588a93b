# exit: 2
# stderr: octet: cannot open metrics: found a pipe or a device, a regular file is required (run/metrics.jsonl)
octet train train.yaml --run-dir run >/dev/null
rm -r run/checkpoints/* run/metrics.jsonl
mkfifo run/metrics.jsonl
timeout 20 octet train train.yaml --run-dir run >/dev/null
