# exit: 0
octet bench attention --shrink 16 --turns 1 --json >rows
json_check schema=1 bench=attention threads=1 unit=GFLOP/s 'value>0' format=bf16 ratio_to_bf16=1 \
    'share_of_limit>0' 'spread=*' 'checked>23' <rows
[ "$(sed 's/.*"case": "[^ ]* \([^"]*\)".*/\1/' rows | tr '\n' ' ')" = 'forward backward both ' ]
