# exit: 3
# stderr: octet: *no-text.txt*
octet train train.yaml dataset.path=no-text.txt --run-dir run || { status=$?; [ ! -e run ]; exit "$status"; }
