# exit: 0
# Every matrix of golden/formats/mx_tensors.txt: codes and scales of the pairs layout, and the plain
# layout means the same values.
tensors=$SOURCE_DIR/tests/golden/formats/mx_tensors.txt
cases=0
while read -r tag rest; do
    case $tag in
    case)
        # shellcheck disable=SC2086
        set -- $rest # rows M cols N axis A alg G scale SHAPE
        rows=$2 cols=$4 axis=$6 alg=$8
        x='' codes=''
        ;;
    x) x="$x $rest" ;;
    c) codes="$codes$rest" ;;
    s)
        scales=$rest
        # shellcheck disable=SC2086
        npy_text make '<f4' "($rows, $cols)" $x >x.npy
        for layout in pairs plain; do
            octet quantize x.npy --format mxfp8 --axis "$axis" --scale-alg "$alg" \
                --scale-layout $layout -o $layout
            [ "$(npy_text show $layout.data.npy)" = "|u1
($rows, $cols)
$codes" ] || { echo "codes of $layout: $rows x $cols axis $axis alg $alg"; exit 1; }
            octet dequantize $layout -o $layout.npy
        done
        [ "$(npy_text show pairs.scale.npy | tail -n 1)" = "$scales" ] ||
            { echo "scales: $rows x $cols axis $axis alg $alg"; exit 1; }
        cmp pairs.npy plain.npy
        cases=$((cases + 1))
        ;;
    esac
done <"$tensors"
[ $cases -gt 0 ]
