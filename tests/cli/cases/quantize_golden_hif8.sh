# exit: 0
# Every matrix of golden/formats/hif8_groups.txt.
cases=0
while read -r tag rest; do
    case $tag in
    case)
        # shellcheck disable=SC2086
        set -- $rest # rows M cols N format_max F group_ends E
        rows=$2 cols=$4 max=$6 groups='' count=0 last=0
        for end in $(echo "$8" | tr , ' '); do
            groups="$groups${groups:+,}$((end - last))"
            last=$end
            count=$((count + 1))
        done
        x='' codes=''
        ;;
    x) x="$x $rest" ;;
    c) codes="$codes$rest" ;;
    s)
        role=input
        [ "$max" = 15 ] || role=grad
        # shellcheck disable=SC2086
        npy_text make '<f4' "($rows, $cols)" $x >x.npy
        octet quantize x.npy --format hif8 --axis -1 --role $role --groups "$groups" -o h
        [ "$(npy_text show h.data.npy)" = "|u1
($rows, $cols)
$codes" ] || { echo "codes: $rows x $cols groups $groups"; exit 1; }
        [ "$(npy_text show h.scale.npy)" = "<f4
($count,)
$(echo "$rest" | tr -d ' ')" ] || { echo "scales: $rows x $cols groups $groups"; exit 1; }
        cases=$((cases + 1))
        ;;
    esac
done <"$SOURCE_DIR/tests/golden/formats/hif8_groups.txt"
[ $cases -gt 0 ]
