# exit: 0
octet bench step train.yaml --turns 1 --steps 1 --formats mxfp8 --layouts 1x1,1x2,2x1 --json >rows
json_check bench=step format=mxfp8 'value>0' ratio_to_bf16=null 'ratio_to_first_layout>0' <rows
[ "$(sed 's/.*"ranks": \([0-9]*\), "threads": \([0-9]*\).*/\1x\2/' rows | tr '\n' ' ')" = '1x1 1x2 2x1 ' ]
tail -n 1 rows | json_check 'parts.all_gather.seconds>0' 'parts.all_gather.floor>0' \
    'parts.reduce_scatter.seconds>0' 'parts.reduce_scatter.floor>0'
