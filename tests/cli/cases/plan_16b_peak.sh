# exit: 0
# A rank of 8 has at most the 96 GiB of a device of the design document: all formats, reshard and recompute on
# and off. docs/known-limits.md prints the peaks in GiB, rounded up.
cd "$SOURCE_DIR"
for format in bf16 mxfp8 hif8; do
    case $format in
    bf16) row="| BF16 |" ;;
    mxfp8) row="| MXFP8 |" ;;
    hif8) row="| HiF8 |" ;;
    esac
    for recompute in full off; do
        for reshard in true false; do
            peak=$(octet plan "configs/deepseek_v3_16b/$format.yaml" --ranks 8 --json \
                "fsdp_config.reshard_after_forward=$reshard" training.threads=1 \
                "gradient_checkpointing.activation_checkpoint='$recompute'" 2>/dev/null |
                sed -n 's/.*"peak": *\([0-9]*\).*/\1/p')
            [ "$peak" -gt 10000000000 ]
            [ "$peak" -le $((96 * 1073741824)) ]
            row="$row $(((peak + 1073741823) / 1073741824)) |"
        done
    done
    grep -qF "$row" docs/known-limits.md || {
        echo "docs/known-limits.md has no row '$row'"
        exit 1
    }
done
