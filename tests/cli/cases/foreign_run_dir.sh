# exit: 2
# stderr: octet: cannot use the run directory: it holds 'precious' and no run of octet*(run)
mkdir run
touch run/precious
octet train train.yaml --run-dir run || { status=$?; [ "$(ls run)" = precious ]; exit "$status"; }
