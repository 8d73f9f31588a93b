# exit: 0
# stdout: Licensed*
octet train train.yaml --run-dir run >/dev/null
octet generate run --prompt Licensed --tokens 20 --seed 3 >once
octet generate run/checkpoints/step-4 --prompt Licensed --tokens 20 --seed 3 >twice
octet generate run/checkpoints --prompt Licensed --tokens 20 --temperature 0 >greedy
octet generate run --prompt Licensed --tokens 20 --temperature 90 --top-p 0.000001 >smallest_set
octet generate run --prompt Licensed --tokens 20 --temperature 0.00001 >cold
octet generate run --prompt Licensed --tokens 20 --temperature 90 --top-p 1 --seed 3 >hot
octet generate run --prompt Licensed --tokens 20 --temperature 90 --top-p 1 --seed 4 >other
cmp once twice
cmp greedy smallest_set
cmp greedy cold
if cmp -s greedy hot; then exit 9; fi
if cmp -s hot other; then exit 9; fi
[ "$(wc -c <greedy)" -ge 9 ]
cat once
