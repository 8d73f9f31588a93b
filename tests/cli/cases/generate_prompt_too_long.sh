# exit: 3
# stderr: octet: cannot continue the prompt: it has 2000 tokens*
octet train train.yaml --run-dir run >/dev/null
octet generate run --prompt "$(printf '%02000d' 0)"
