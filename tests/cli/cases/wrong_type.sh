# exit: 2
# stderr: octet: *"2e-5"*bad.yaml:3*
printf 'base: train.yaml\noptimizer:\n  lr: "2e-5"\n' >bad.yaml
octet train bad.yaml
