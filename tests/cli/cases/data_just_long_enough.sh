# exit: 0
# stdout: step 4/4 *
printf '%032d' 0 >short.txt
octet train train.yaml dataset.path=short.txt --run-dir run
