# exit: 130
# stderr: octet: stopped by a signal
# stdout: kept
# What was not reached stays in the report, as not run.
out=$PWD/verify
cd "$SOURCE_DIR"
octet verify --ranks 1 --case Q3-01 --case Q3-02 --out "$out" &
pid=$!
while [ ! -s "$out/report.json" ]; do sleep 0.05; done
kill -INT "$pid"
status=0
wait "$pid" || status=$?
tr -d '\n' <"$out/report.json" | json_check cases.#=2 cases.0.status=not_run cases.1.id=Q3-02 cases.1.status=not_run
echo kept
exit "$status"
