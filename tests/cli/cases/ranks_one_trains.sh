# exit: 0
# stdout: saved checkpoint step-*
# One rank of a launcher trains as without one: the same bytes of losses.
octet train train.yaml --run-dir alone >/dev/null
octet launch -n 1 -- train train.yaml --run-dir launched
losses() { sed 's/.*"loss":\([^,]*\),.*/\1/' "$1/metrics.jsonl"; }
[ "$(losses alone)" = "$(losses launched)" ]
[ -n "$(losses alone)" ]
