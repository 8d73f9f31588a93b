#!/bin/sh
# Runs the commands of the example in docs/acceptance.md, as they stand there, in a folder of its own.
#
#   usage.sh OCTET SOURCE_DIR
set -eu
octet=$1 source=$2
scratch=$(mktemp -d "${TMPDIR:-/tmp}/octet-usage-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/build/release"
ln -s "$octet" "$scratch/build/release/octet"
ln -s "$source/configs" "$scratch/configs"
ln -s "$source/LICENSE" "$scratch/LICENSE"
sed -n '/^<!-- tests\/docs\/usage.sh runs/,/^<!-- to here -->/s/^    //p' \
    "$source/docs/acceptance.md" >"$scratch/commands"
[ "$(wc -l <"$scratch/commands")" -ge 9 ] || {
    echo "fewer than 9 commands in the example of docs/acceptance.md"
    exit 1
}
cd "$scratch"
while IFS= read -r command; do
    echo "\$ $command"
    sh -c "$command" </dev/null || {
        echo "failed: $command"
        exit 1
    }
done <commands
# What the example says: four steps each, the formats apart, and nothing else that differs.
for format in bf16 mxfp8 hif8; do
    [ "$(wc -l <"runs/$format/metrics.jsonl")" -eq 4 ] || {
        echo "runs/$format has not four rows"
        exit 1
    }
done
[ "$(diff runs/bf16/config.yaml runs/mxfp8/config.yaml | grep -cE '^[<>] *[a-z]')" -eq 2 ] || {
    diff runs/bf16/config.yaml runs/mxfp8/config.yaml
    echo "BF16 and MXFP8 differ in more than low_precision.enabled"
    exit 1
}
