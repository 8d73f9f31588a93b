# exit: 0
# 15 replaced modules; 16 weights quantized at the start and after each of 4 steps.
octet train train.yaml low_precision.enabled=true trace=true --run-dir run >/dev/null
json_check schema=1 'event=*' step=* <run/trace-0.jsonl
count() { grep -c "\"event\":\"$1\"" run/trace-0.jsonl; }
[ "$(count replace)" = 15 ]
[ "$(count refresh)" = 80 ]
[ "$(count save)" = 1 ]
