# exit: 0
octet bench step train.yaml --threads 1 --turns 1 --json >rows
json_check bench=step 'case=4x32 tokens' threads=1 unit=tokens/s 'value>0' 'ratio_to_bf16>0' \
    share_of_limit=null 'spread=*' <rows
[ "$(sed 's/.*"format": "\([^"]*\)".*/\1/' rows | tr '\n' ' ')" = 'bf16 mxfp8 hif8 ' ]
