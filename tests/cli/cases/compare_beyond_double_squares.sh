# exit: 1
# stderr: octet: *the NRMSE is 1.78885438, at most 1.78 is required*
# stdout: NRMSE * 1.78885438
# stdout: cosine *-0.5999999*
# [1, 2] and [1, -2] times 2^700, times 2^-700, and where even the difference leaves the range.
for pair in 6bb,6bc 143,144 7fd8,7fe8; do
    one=$(printf '%s0000000000000' "${pair%,*}" | cut -c1-16)
    two=$(printf '%s0000000000000' "${pair#*,}" | cut -c1-16)
    minus=$(printf '%x%s' $((0x$(printf %.1s "$two") + 8)) "${two#?}")
    npy_text make '<f8' '(2,)' "$one" "$two" >a.npy
    npy_text make '<f8' '(2,)' "$one" "$minus" >b.npy
    octet compare a.npy b.npy --max-nrmse 1.79 >report
    grep -q '^NRMSE  *1.78885438$' report
    status=0
    octet compare a.npy b.npy --min-cosine -0.59 2>error >report || status=$?
    [ $status = 1 ]
    grep -q 'the cosine is -0.6, at least -0.59 is required' error
done
octet compare a.npy b.npy --max-nrmse 1.78
