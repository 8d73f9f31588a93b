# exit: 130
# A shell makes its background jobs ignore SIGINT; octet asks for it all the same.
octet train train.yaml training.train_iters=100000 --run-dir run >/dev/null &
pid=$!
while [ ! -s run/metrics.jsonl ]; do sleep 0.05; done
kill -INT "$pid"
status=0
wait "$pid" || status=$?
octet checkpoint verify run >/dev/null
exit "$status"
