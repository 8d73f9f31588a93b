# exit: 0
# Handwritten rows: the figures are told by hand, and the report is compared as a whole.
row() { # step loss tokens seconds peak skipped
    printf '{"schema":1,"kind":"train","attempt":1,"step":%s,"loss":%s,"tokens":%s,"step_seconds":%s,' "$1" "$2" "$3" "$4"
    printf '"peak_memory_bytes":%s,"skipped":%s}\n' "$5" "${6:-false}"
}
mkdir a b c
octet train train.yaml --print-config >a/config.yaml
octet train train.yaml low_precision.enabled=true --print-config >b/config.yaml
cp b/config.yaml c/config.yaml
# Losses 25, 24, ... 1; rates 100, but for the first two steps, which are left out.
for step in $(seq 1 25); do
    if [ "$step" -le 2 ]; then seconds=9; else seconds=0.5; fi
    row "$step" $((26 - step)) 50 $seconds 7000000
done >a/metrics.jsonl
# Without step 3; 10 % over everywhere, twice as much at step 25: 1 to 2.
for step in $(seq 1 25); do
    [ "$step" != 3 ] || continue
    if [ "$step" = 25 ]; then loss=2; else loss=$(((26 - step) * 11))e-1; fi
    row "$step" $loss 50 0.25 9000000
    [ "$step" != 7 ] || row 7 null 50 0.25 9000000 true
done >b/metrics.jsonl
row 90 3.5 8 1 0 >c/metrics.jsonl
octet report a b c >found
sed -n '16,$p' found >figures
cat >required <<'END'

    step  * bfloat16     o mxfp8_e4m3   + mxfp8_e4m3 
       1        25.0000        27.5000              -
       3        23.0000              -              -
       5        21.0000        23.1000              -
       7        19.0000        20.9000              -
       9        17.0000        18.7000              -
      11        15.0000        16.5000              -
      13        13.0000        14.3000              -
      15        11.0000        12.1000              -
      17         9.0000         9.9000              -
      19         7.0000         7.7000              -
      21         5.0000         5.5000              -
      23         3.0000         3.3000              -
      25         1.0000         2.0000              -

format            steps   final loss     tokens/s      speed     memory  largest gap to the first run
bfloat16             25       1.5000          100      1.00x       7 MB
mxfp8_e4m3           24       2.1000          200      2.00x       9 MB  100.00 % at step 25, 10.43 % over 20 steps  (1 skipped)
mxfp8_e4m3            1       3.5000            8      0.08x       0 MB  no step in common
(losses in nats per token; final loss: mean of the last tenth of the steps; tokens/s: median)
END
# The largest gap over 20 steps ends at step 25: the sum of losses 1 to 20 is 210, that of 1.1 times 2 to 20 and 2 is 231.9.
diff required figures
