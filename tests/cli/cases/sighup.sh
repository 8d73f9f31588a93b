# exit: 129
octet train train.yaml training.train_iters=100000 --run-dir run >/dev/null &
pid=$!
while [ ! -s run/metrics.jsonl ]; do sleep 0.05; done
kill -HUP "$pid"
status=0
wait "$pid" || status=$?
step=$(ls run/checkpoints)
octet checkpoint verify run >/dev/null
tail -n 1 run/metrics.jsonl | json_check "step=${step#step-}"
exit "$status"
