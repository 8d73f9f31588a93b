#!/bin/sh
# Checkpoints between octet and PyTorch, in both directions:
#
#   run.sh OCTET CHECKPOINT_DUMP CHECKPOINT_RECUT SOURCE_DIR
#
# PyTorch is that of python3, or of the root that scripts/torch-chroot made and OCTET_TORCH_CHROOT
# names. 77: there is none.
set -eu
octet=$1 dump=$2 recut=$3 source=$4 root=${OCTET_TORCH_CHROOT:-}
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
scratch=$(mktemp -d "${root:-${TMPDIR:-/tmp}}${root:+/tmp}/octet-interop-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cp "$source/tests/interop/torch_dcp.py" "$source/tests/cli/files/config.json" "$scratch"

# The script in the scratch folder; mounts of the root end with it. What it says is shown if it fails.
torch() {
    if [ -z "$root" ]; then
        (cd "$scratch" && exec python3 -B torch_dcp.py "$@") 2>"$scratch/log" || fail "torch_dcp.py $*"
    else
        unshare --mount sh -c 'mount -t proc proc "$0/proc" && mount -t tmpfs shm "$0/dev/shm" || :
            exec chroot "$0" env -C "$@"' "$root" "${scratch#"$root"}" python3 -B torch_dcp.py "$@" \
            2>"$scratch/log" || fail "torch_dcp.py $*"
    fi
}
fail() {
    echo "FAILED: $1"
    cat "$scratch/log"
    exit 1
}
# The lines of both sides are the same, but for keys that octet lists and does not read.
same() {
    grep -v -E "${3:-^$}" "$scratch/$1" >"$scratch/left" || :
    grep -v -E "${3:-^$}" "$scratch/$2" >"$scratch/right" || :
    diff "$scratch/left" "$scratch/right" >"$scratch/log" || fail "$1 and $2 differ"
    echo "same: $1 and $2, $(wc -l <"$scratch/left") keys"
}
if [ -n "$root" ]; then
    # shellcheck disable=SC2016
    [ "$(id -u)" -eq 0 ] || { echo "SKIPPED: not root, OCTET_TORCH_CHROOT needs it"; exit 77; }
    [ -e "$root/etc/octet-torch" ] || fail "$root was not made by scripts/torch-chroot" 2>/dev/null
elif ! python3 -c 'import torch.distributed.checkpoint' 2>/dev/null; then
    echo "SKIPPED: no PyTorch: python3 cannot import torch, and OCTET_TORCH_CHROOT names no root" \
        "(scripts/torch-chroot DIR makes one)"
    exit 77
fi
torch version

mkdir "$scratch/model"
cp "$scratch/config.json" "$scratch/model/"
cp "$source/tests/cli/files/train.yaml" "$source/configs/base.yaml" "$scratch"
head -c 6000 "$source/LICENSE" >"$scratch/text.txt"
train() { # RUN_DIR KEY=VALUE...
    run=$1
    shift
    # shellcheck disable=SC2086
    (cd "$scratch" && "$octet" ${launch:-} train train.yaml --run-dir "$run" "$@") \
        >"$scratch/log" 2>&1 || fail "octet ${launch:-} train $*"
}
launch=
has_ranks=$(ldd "$octet" | grep -c libmpi) || :
show() { # CHECKPOINT NAME: the lines of octet
    (cd "$scratch" && "$dump" "$1") >"$scratch/$2" 2>"$scratch/log" || fail "checkpoint_dump $1"
}

echo "--- PyTorch reads what octet wrote"
train run checkpoint.save_steps=2
ours=run/checkpoints/step-2
show $ours octet
for action in dump nested "reshard 1" "reshard 3"; do
    # shellcheck disable=SC2086
    torch $action $ours >"$scratch/torch-${action#* }"
    same octet "torch-${action#* }"
done
torch adamw $ours config.json

echo "--- the same, saved by four ranks in chunks of at most 4000 bytes"
"$recut" "$scratch/$ours" "$scratch/ranks" 4 4000 2>"$scratch/log" || fail "checkpoint_recut"
files=$(ls "$scratch"/ranks/step-2/__?_0.distcp | wc -l)
[ "$files" -eq 4 ] || fail "$files files of four ranks" 2>/dev/null
show ranks/step-2 octet-ranks
same octet octet-ranks
for action in dump nested "reshard 3"; do
    # shellcheck disable=SC2086
    torch $action ranks/step-2 >"$scratch/torch-ranks-${action#* }"
    same octet "torch-ranks-${action#* }"
done

if [ "$has_ranks" -gt 0 ]; then
    echo "--- the same, trained on two ranks"
    launch="launch -n 2 --"
    train two checkpoint.save_steps=2
    launch=
    show two/checkpoints/step-2 octet-two
    same octet octet-two
    torch reshard 3 two/checkpoints/step-2 >"$scratch/torch-two"
    same octet torch-two
fi

echo "--- octet goes on from what PyTorch saved again, to the same bits"
torch again $ours again
train second checkpoint.restore_from=again
show run/checkpoints/step-4 octet
show second/checkpoints/step-4 octet-by-torch
same octet octet-by-torch

echo "--- octet reads what PyTorch wrote"
for kind in weights plain adamw experts odd; do
    torch write $kind $kind config.json
    torch dump $kind >"$scratch/torch-$kind"
    show $kind octet-$kind
    unread='^$'
    [ $kind = odd ] && unread='^(cut.dim1|objects.huge|evil) '
    same octet-$kind torch-$kind "$unread"
    for action in ls show verify; do
        "$octet" checkpoint $action "$scratch/$kind" >"$scratch/log" 2>&1 || fail "$action $kind"
    done
done
for kind in weights plain adamw experts; do
    train "from-$kind" checkpoint.restore_from=$kind checkpoint.restore_optimizer=false
done
for kind in adamw experts; do
    train "on-from-$kind" checkpoint.restore_from=$kind
    grep -q "PyTorch, 3 updates" "$scratch/log" || fail "the step of AdamW in $kind"
    [ "$has_ranks" -gt 0 ] || continue
    launch="launch -n 2 --"
    train "ranks-from-$kind" checkpoint.restore_from=$kind
    launch=
    show "on-from-$kind/checkpoints/step-4" "one-rank-from-$kind"
    show "ranks-from-$kind/checkpoints/step-4" "two-ranks-from-$kind"
    same "one-rank-from-$kind" "two-ranks-from-$kind"
done
echo "all kinds train"
