# exit: 2
# stderr: octet: run directory is in use: held by pid *, a free one is required (run)
octet train train.yaml training.train_iters=100000 --run-dir run >/dev/null &
first=$!
while [ ! -s run/metrics.jsonl ]; do sleep 0.05; done
status=0
octet train train.yaml training.train_iters=100000 --run-dir run || status=$?
kill -TERM "$first"
wait "$first" || [ $? = 143 ]
exit "$status"
