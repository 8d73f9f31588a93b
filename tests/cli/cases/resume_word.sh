# exit: 2
# stderr: octet: wrong word to resume from: found 'newest', latest, none or step-N is required (--resume)
octet train train.yaml --run-dir run --resume newest
