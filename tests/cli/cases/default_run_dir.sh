# exit: 0
octet train train.yaml >/dev/null
[ -f runs/train/metrics.jsonl ]
