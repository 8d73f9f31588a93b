# exit: 3
# stderr: octet: *run/metrics.jsonl:2*
octet train train.yaml --run-dir run >/dev/null
sed -i '2s/.*/{"kind": "train"}/' run/metrics.jsonl
octet report run
