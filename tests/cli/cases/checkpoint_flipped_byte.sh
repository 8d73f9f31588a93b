# exit: 4
# stderr: octet: *__0_0.distcp*
# stdout: *.metadata * ok
octet train train.yaml --run-dir run >/dev/null
printf '\377' | dd of=run/checkpoints/step-4/__0_0.distcp bs=1 seek=70001 conv=notrunc 2>/dev/null
octet checkpoint verify run
