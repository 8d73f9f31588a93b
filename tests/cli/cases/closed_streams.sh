# exit: 1
# Nothing that is printed lands in a file of the run.
status=0
octet train train.yaml --run-dir run <&- >&- 2>&- || status=$?
json_check schema=1 <run/metrics.jsonl
octet checkpoint verify run >/dev/null
exit "$status"
