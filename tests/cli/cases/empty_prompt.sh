# exit: 3
# stderr: octet: cannot continue the prompt: it has 0 tokens, from 1 to 1023 are required*
octet train train.yaml --run-dir run >/dev/null
octet generate run --prompt ''
