# exit: 2
# stderr: octet: *plan_overrides*
printf 'base: train.yaml\nplan_overrides: []\nlow_precision:\n  enabled: true\n' >bad.yaml
octet train bad.yaml
