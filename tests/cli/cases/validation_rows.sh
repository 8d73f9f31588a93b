# exit: 0
# stdout: step 2  validation loss 5.*
cp text.txt held-out.txt
octet train train.yaml dataset.validation.path=held-out.txt dataset.validation.every=2 dataset.validation.steps=2 --run-dir run
grep '"validation"' run/metrics.jsonl >rows
[ "$(wc -l <rows)" = 2 ]
json_check schema=1 kind=validation 'loss>0' tokens=256 <rows
head -n 1 rows | json_check step=2 attempt=2
