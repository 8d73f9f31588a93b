# exit: 0
# Every case in every format, tiny; what is computed is checked before it is timed.
octet bench gemm --shrink 32 --turns 1 --json >rows
json_check schema=1 bench=gemm threads=1 unit=GFLOP/s 'value>0' 'ratio_to_bf16>0' 'ratio_to_peer=*' \
    'share_of_limit>0' 'spread=*' 'checked>95' <rows
[ "$(sed 's/.*"case": "\([^"]*\)".*"format": "\([^"]*\)".*/\1 \2/' rows | sort -u | wc -l)" = 30 ]
[ "$(sed 's/.*"format": "\([^"]*\)".*/\1/' rows | sort | uniq -c | tr -s ' \n' ' ')" = ' 10 bf16 10 hif8 10 mxfp8 ' ]
octet bench gemm --shape 48x128x96 --threads 2 --turns 2 --json >rows
json_check schema=1 bench=gemm case=48x128x96 threads=2 'value>0' 'checked>95' <rows
[ "$(sed 's/.*"format": "\([^"]*\)".*/\1/' rows | tr '\n' ' ')" = 'bf16 mxfp8 hif8 ' ]
octet bench gemm --shape 48x128x96 --threads 1 --turns 1 --no-peers >text
[ "$(grep -c ' % of the limit$' text)" = 3 ]
