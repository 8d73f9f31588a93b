# exit: 129
# stderr: octet: stopped by a signal
# stdout: 0 left
# A closed terminal ends the run that was being made, too.
sed 's/train_iters: 4/train_iters: 25/' train.yaml >own.yaml
octet verify --config own.yaml --case bf16 --ranks 1 --out verify >/dev/null &
pid=$!
while [ ! -s verify/report.json ]; do sleep 0.02; done
kill -HUP "$pid"
status=0
wait "$pid" || status=$?
left=$(grep -lza "$PWD[/]verify/runs" /proc/[0-9]*/cmdline 2>/dev/null | wc -l) # arguments of its trainer
echo "$left left"
exit "$status"
