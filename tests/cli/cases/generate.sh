# exit: 0
# stdout: Licensed*
octet train train.yaml --run-dir run >/dev/null
octet generate run --prompt Licensed --tokens 20 --seed 3 >once
octet generate run/checkpoints/step-4 --prompt Licensed --tokens 20 --seed 3 >twice
octet generate run/checkpoints --prompt Licensed --tokens 20 --temperature 0 >greedy
cmp once twice
[ "$(wc -c <greedy)" -ge 9 ]
cat once
