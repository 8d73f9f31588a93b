# exit: 0
octet train train.yaml logging.format=json --run-dir run >rows
json_check schema=1 kind=train 'loss>0' <rows
cmp rows run/metrics.jsonl
