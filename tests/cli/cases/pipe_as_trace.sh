# exit: 2
# stderr: octet: cannot open the trace: found a pipe or a device, a regular file is required (run/trace-0.jsonl)
octet train train.yaml trace=true training.stop_at_step=2 --run-dir run >/dev/null
rm run/trace-0.jsonl
mkfifo run/trace-0.jsonl
timeout 20 octet train train.yaml trace=true --run-dir run >/dev/null
