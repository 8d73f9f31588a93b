# exit: 3
# stderr: octet: *32*33*
printf '%031d' 0 >short.txt
octet train train.yaml dataset.path=short.txt
