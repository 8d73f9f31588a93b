# exit: 0
# The memory table of docs/claims.md is what `octet plan` says: what is stored to the last digit, what a
# pass needs to half a GiB.
cd "$SOURCE_DIR"
for format in bf16 mxfp8 hif8; do
    octet plan "configs/deepseek_v3_16b/$format.yaml" training.threads=1 --ranks 8 --json >"$OLDPWD/$format.json"
done
cd "$OLDPWD"
column=3
for format in bf16 mxfp8 hif8; do
    for part in master moments gradients low_precision high_precision unsharded activations peak; do
        told=$(awk -F'|' -v part=" $part " -v column=$column '$2 == part { gsub(/ /, "", $column); print $column }' \
            "$SOURCE_DIR/docs/claims.md")
        [ -n "$told" ] || { echo "docs/claims.md has no row '$part'"; exit 1; }
        case $part in
        unsharded | activations | peak) margin=0.5 ;;
        *) margin=0.00501 ;;
        esac
        low=$(awk -v gib="$told" -v margin=$margin 'BEGIN { printf "%.0f", (gib - margin) * 1073741824 }')
        high=$(awk -v gib="$told" -v margin=$margin 'BEGIN { printf "%.0f", (gib + margin) * 1073741824 }')
        json_check "bytes_per_rank.$part>$low" "bytes_per_rank.$part<$high" <"$format.json"
    done
    column=$((column + 1))
done
