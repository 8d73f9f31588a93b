# exit: 0
octet bench pack --shrink 16 --turns 1 --json >rows
json_check schema=1 bench=pack threads=1 unit=Gelem/s 'value>0' ratio_to_bf16=null \
    'ratio_to_peer.memcpy>0' 'share_of_limit>0' 'spread=*' 'checked>1023' <rows
[ "$(sed 's/.*"format": "\([^"]*\)".*/\1/' rows | sort | uniq -c | tr -s ' \n' ' ')" = ' 4 hif8 4 mxfp8 ' ]
