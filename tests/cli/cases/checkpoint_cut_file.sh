# exit: 4
# stderr: octet: *__0_0.distcp*
# stdout: *damaged*
octet train train.yaml --run-dir run >/dev/null
truncate -s 1000 run/checkpoints/step-4/__0_0.distcp
octet checkpoint ls run
