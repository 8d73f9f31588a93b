# exit: 0
# stdout: ranks: 2 ranks, *shared memory, 1 micro-batches of a step on each*
# stdout: saved checkpoint step-4
# One line per event, from rank 0, and the numbers of one rank.
octet train train.yaml --run-dir alone >alone.txt
octet launch -n 2 -- train train.yaml --run-dir two
numbers() { sed 's/"tokens_per_second".*"skipped"/"skipped"/; s/, "seconds".*//' "$1/metrics.jsonl"; }
[ "$(numbers alone)" = "$(numbers two)" ]
[ "$(grep -c . two/metrics.jsonl)" = 4 ]
octet checkpoint verify two/checkpoints/step-4 >/dev/null
