# exit: 0
octet train train.yaml low_precision.enabled=true trace=true --run-dir run >/dev/null
json_check schema=1 'event=*' step=* <run/trace-0.jsonl
count() { grep -c "\"event\":\"$1\"" run/trace-0.jsonl; }
[ "$(count refresh)" = 64 ]
[ "$(count save)" = 1 ]
