# exit: 4
# stderr: octet: the last checkpoint could not be saved: step 4 is in none, *
# stdout: saved checkpoint step-1
# stdout: step 4/4 *
# A write that fails in the middle of a checkpoint, as on a full disk.
octet train train.yaml checkpoint.save_steps=1 training.train_iters=1 --run-dir run 2>errors
status=0
(ulimit -f 2000 && octet train train.yaml checkpoint.save_steps=1 --run-dir run) 2>errors || status=$?
cat errors >&2
[ "$(grep -c "warning: training goes on without this checkpoint: saving step [234]: cannot write 'run/checkpoints/step-[234].tmp-[0-9a-f]*/__0_0.distcp': File too large" errors)" = 3 ]
[ "$(ls run/checkpoints)" = step-1 ]
octet checkpoint verify run >/dev/null
exit "$status"
