# exit: 0
# stdout: *step-2  step 2  1 ranks*
# stdout: *step-4  step 4  1 ranks*
octet train train.yaml checkpoint.save_steps=2 --run-dir run >/dev/null
octet checkpoint ls run
