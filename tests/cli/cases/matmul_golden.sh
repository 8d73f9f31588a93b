# exit: 0
# Every product of golden/formats/gemm_*.txt, dense and grouped, against its FP64 result.
cases=0
finish() {
    right="($rrows, $rcols)" out="($yrows, $ycols)"
    left_role=input right_role=weight grouped=''
    case $kind in
    *fprop*) layout=NT laxis=-1 raxis=-1 ;;
    *dgrad*) layout=NN laxis=-1 raxis=-2 left_role=grad ;;
    *wgrad*) layout=TN laxis=-2 raxis=-2 left_role=grad right_role=input ;;
    esac
    if [ -n "$groups" ]; then
        grouped="--groups $groups"
        case $layout in
        TN) out="($count, $((yrows / count)), $ycols)" ;;
        *) right="($count, $((rrows / count)), $rcols)" ;;
        esac
    fi
    # shellcheck disable=SC2086
    npy_text make '<f4' "($lrows, $lcols)" $left >l.npy
    # shellcheck disable=SC2086
    npy_text make '<f4' "$right" $rights >r.npy
    # shellcheck disable=SC2086
    npy_text make '<f8' "$out" $y >y.npy
    right_groups=''
    [ $layout != TN ] || right_groups=$grouped
    # shellcheck disable=SC2086
    octet quantize l.npy --format "$format" --axis $laxis --role $left_role $grouped -o l
    # shellcheck disable=SC2086
    octet quantize r.npy --format "$format" --axis $raxis --role $right_role $right_groups \
        --scale-layout "$([ "$format" = mxfp8 ] && echo pairs || echo plain)" -o r
    # shellcheck disable=SC2086
    octet matmul l r --layout $layout $grouped --dtype f32 -o out.npy
    octet compare y.npy out.npy --max-nrmse 3e-7 >report || { echo "$format $kind $groups"; exit 1; }
    cases=$((cases + 1))
}
for file in dense grouped; do
    while read -r tag rest; do
        case $tag in
        case)
            # shellcheck disable=SC2086
            set -- $rest # FORMAT KIND [group_ends E] ...
            format=$1 kind=$2 groups='' count=0 last=0 operands=0 left='' rights='' y=''
            [ "$3" = group_ends ] || continue
            for end in $(echo "$4" | tr , ' '); do
                groups="$groups${groups:+,}$((end - last))"
                last=$end
                count=$((count + 1))
            done
            ;;
        x | w | dy | y | abs)
            rows=${rest% *} cols=${rest#* }
            operands=$((operands + 1))
            case $operands in
            1) lrows=$rows lcols=$cols ;;
            2) rrows=$rows rcols=$cols ;;
            3) yrows=$rows ycols=$cols ;;
            esac
            ;;
        end) finish ;;
        *)
            case $operands in
            1) left="$left $tag" ;;
            2) rights="$rights $tag" ;;
            3) y="$y $tag" ;;
            esac
            ;;
        esac
    done <"$SOURCE_DIR/tests/golden/formats/gemm_$file.txt"
done
[ $cases -gt 0 ]
