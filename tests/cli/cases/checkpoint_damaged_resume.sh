# exit: 4
# stderr: octet: *step-4*
octet train train.yaml --run-dir run >/dev/null
printf '\377' | dd of=run/checkpoints/step-4/__0_0.distcp bs=1 seek=70001 conv=notrunc 2>/dev/null
octet train train.yaml training.train_iters=4 --run-dir run --resume step-4
