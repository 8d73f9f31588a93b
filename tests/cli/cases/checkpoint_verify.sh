# exit: 0
# stdout: *COMMIT.json*ok
# stdout: *__0_0.distcp*ok
# stdout: *.metadata*ok
octet train train.yaml --run-dir run >/dev/null
octet checkpoint verify run
