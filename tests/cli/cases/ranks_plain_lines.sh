# exit: 0
# mpirun gives each rank a terminal; what ends in a file has no lines that are written over.
octet launch -n 2 -- train train.yaml --run-dir out >log 2>/dev/null
[ "$(grep -c '^step [1-4]/4 ' log)" = 4 ]
[ "$(tr -d '\033' <log | wc -c)" = "$(wc -c <log)" ]
