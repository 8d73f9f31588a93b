# exit: 0
# One changed bit or a cut in every kind of file is refused by the file's name: by `octet checkpoint
# verify`, by a resume at this step, and by one at the latest, which falls back to the older step.
octet train train.yaml checkpoint.save_steps=2 --run-dir good >/dev/null 2>&1
step=run/checkpoints/step-4

refused() { # FILE: what is damaged in $step
    status=0
    octet checkpoint verify "$step" >/dev/null 2>errors || status=$?
    [ "$status" = 4 ]
    grep "^octet: .*$step/$1'" errors >/dev/null
    status=0
    octet train train.yaml checkpoint.save_steps=2 --run-dir run --resume step-4 >/dev/null 2>errors || status=$?
    [ "$status" = 4 ]
    grep "^octet: .*$step/$1'" errors >/dev/null
    octet train train.yaml checkpoint.save_steps=2 --run-dir run >output 2>errors
    grep "^octet: warning: passing over step-4: .*$step/$1'" errors >/dev/null
    grep "resumed from the checkpoint of step 2" output >/dev/null
    octet checkpoint verify run >/dev/null # step 4 was written again over the damaged one
    rm -r run
}
flip() { # FILE OFFSET: another lowest bit
    cp -r good run
    byte=$(od -An -tu1 -j "$2" -N 1 "$step/$1")
    flipped=$((byte ^ 1))
    # shellcheck disable=SC2059
    printf "\\$(printf %o "$flipped")" | dd of="$step/$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
    refused "$1"
}
cut_to() { # FILE BYTES
    cp -r good run
    truncate -s "$2" "$step/$1"
    refused "$1"
}
size() { wc -c <"good/checkpoints/step-4/$1"; }

data=__0_0.distcp
pickle=$(LC_ALL=C grep -abo data.pkl good/checkpoints/step-4/$data | sed -n '1s/:.*//p')
flip $data 70001                # payload of a tensor
flip $data $((pickle + 20))     # its description
flip $data $(($(size $data) - 30)) # the zip directory of the last archive
flip .metadata 1000
flip COMMIT.json 30
cut_to $data $(($(size $data) - 1))
cut_to .metadata 100
cut_to COMMIT.json 0
