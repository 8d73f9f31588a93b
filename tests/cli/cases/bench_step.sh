# exit: 0
octet bench step train.yaml --threads 1 --turns 1 --steps 1 --json >rows
json_check schema=1 bench=step 'case=4x32 tokens' threads=1 ranks=1 unit=tokens/s 'value>0' \
    'ratio_to_bf16>0' ratio_to_first_layout=1 ratio_to_peer='{}' 'share_of_limit>0' 'spread=*' \
    'loss>0' 'peak_memory_bytes>1000000' 'checked>0' 'parts.fprop.seconds>0' 'parts.fprop.floor>0' \
    'parts.dgrad.seconds>0' 'parts.dgrad.floor>0' 'parts.wgrad.seconds>0' 'parts.wgrad.floor>0' \
    'parts.head.seconds>0' 'parts.head.floor>0' 'parts.attention.seconds>0' \
    'parts.attention.floor>0' 'parts.elementwise.seconds>0' 'parts.elementwise.floor>0' \
    'parts.routing.seconds>0' 'parts.routing.floor>0' 'parts.optimizer.seconds>0' \
    'parts.optimizer.floor>0' 'parts.rest.seconds=*' parts.all_gather.seconds=0 <rows
[ "$(sed 's/.*"format": "\([^"]*\)".*/\1/' rows | tr '\n' ' ')" = 'bf16 mxfp8 hif8 ' ]
grep -v '"bf16", ' rows | json_check 'parts.quantize.seconds>0' 'parts.quantize.floor>0' \
    'parts.pack.seconds>0' 'parts.pack.floor>0'
octet bench step train.yaml --turns 1 --steps 1 --formats hif8 >text
grep -q '^hif8, 1 x 1: ' text
grep -q '^  wgrad ' text
# Floors counted by hand for this model, per token. Quantization and elementwise steps read and write 8971 (MXFP8) and 10992
# (HiF8) over 9792 bytes: rows of tokens count once (HiF8 twice) for all their experts, SwiGLU of experts where it is made.
# With recomputation row forms are made twice: 3119.5 bytes more. Routing in BF16: 1536 operations, where fprop has 137216,
# and 1152 bytes, where the elementwise steps have 10368.
floor() { # format, part
    sed -n "s/.*\"format\": \"$1\".*\"$2\": {[^}]*\"floor\": \([^}]*\)}.*/\1/p" rows
}
ratio() { echo "$(floor "$1" quantize) $(floor "$1" elementwise)" | awk '{ printf "%.4f", $1 / $2 }'; }
[ "$(ratio mxfp8)" = 0.9162 ]
[ "$(ratio hif8)" = 1.1225 ]
[ "$(echo "$(floor bf16 routing) $(floor bf16 fprop) $(floor bf16 elementwise)" |
    awk '{ printf "%.4f", $1 / ($2 * 1536 / 137216 + $3 * 1152 / 10368) }')" = 1.0000 ]
octet bench step train.yaml gradient_checkpointing.activation_checkpoint=full --threads 1 --turns 1 --steps 1 \
    --formats mxfp8 --json >rows
[ "$(ratio mxfp8)" = 1.2347 ]
