# exit: 2
# stderr: octet: *optimiser*optimizer*bad.yaml:2*
printf 'base: train.yaml\noptimiser:\n  lr: 1.0e-3\n' >bad.yaml
octet train bad.yaml
