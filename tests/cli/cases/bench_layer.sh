# exit: 0
octet bench layer --shrink 32 --turns 1 --json --no-peers >rows
json_check schema=1 bench=layer threads=1 unit=GFLOP/s 'value>0' 'ratio_to_bf16>0' ratio_to_peer='{}' \
    'share_of_limit>0' 'spread=*' 'checked>287' <rows
[ "$(sed 's/.*"case": "\([^"]*\)".*"format": "\([^"]*\)".*/\1 \2/' rows | sort -u | wc -l)" = 39 ]
for data in 'log-normal 1' 'log-normal 2' adversarial swiglu; do
    grep -q "$data" rows
done
octet bench layer --shrink 32 --turns 1 --json --case 'log-normal 2' >rows
[ "$(wc -l <rows)" = 3 ]
