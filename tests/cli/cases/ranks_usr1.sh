# exit: 138
# SIGUSR1 to the launcher reaches the ranks, which end their step and save it.
octet launch -n 2 -- train train.yaml training.train_iters=100000 --run-dir out >/dev/null 2>&1 &
pid=$!
tries=0
while [ "$(cat out/metrics.jsonl 2>/dev/null | wc -l)" -lt 2 ] && [ $tries -lt 600 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
kill -USR1 "$pid"
code=0
wait "$pid" || code=$?
rows=$(wc -l <out/metrics.jsonl)
[ -d "out/checkpoints/step-$((rows))" ]
exit $code
