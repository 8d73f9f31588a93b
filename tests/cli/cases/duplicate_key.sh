# exit: 2
# stderr: octet: *seed*bad.yaml:[23]*
printf 'base: train.yaml\nseed: 1\nseed: 2\n' >bad.yaml
octet train bad.yaml
