# exit: 2
# stderr: octet: *too long: 4060 characters, at most 3968*
# Just short enough for config.yaml, too long for the files of a checkpoint.
octet train train.yaml --run-dir "$(printf 'a/%.0s' $(seq 2030))"
