# exit: 2
# stderr: octet: *File too large*
# An error that is told, not the end by SIGXFSZ. The limit holds for stderr too if that is a file.
status=0
line=$(ulimit -f 0 && octet train train.yaml --run-dir run 2>&1 >/dev/null) || status=$?
echo "$line" >&2
exit "$status"
