# exit: 0
octet bench gemm --shape 48x128x96 --threads 1 --turns 2 --json >rows
json_check schema=1 bench=gemm case=48x128x96 threads=1 unit=GFLOP/s 'value>0' 'ratio_to_bf16>0' \
    'share_of_limit>0' 'spread=*' <rows
[ "$(sed 's/.*"format": "\([^"]*\)".*/\1/' rows | tr '\n' ' ')" = 'bf16 mxfp8 hif8 ' ]
octet bench gemm --shape 48x128x96 --threads 1 --turns 1 >text
[ "$(grep -c ' % of the limit$' text)" = 3 ]
