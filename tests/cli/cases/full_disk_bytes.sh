# exit: 4
# stderr: octet: the last checkpoint could not be saved: step 4 is in none, *
# stdout: step 4/4 *
# stdout: resumed from the checkpoint of step 1
# stdout: saved checkpoint step-4
# A disk with room for one checkpoint: the second is refused before it is written, training goes
# on, and with more room the run goes on from the first.
if [ $# = 0 ]; then # in a name space of its own, where nobody else sees the mount
    mkdir full
    for how in -m -rm; do
        if unshare $how mount -t tmpfs none full 2>/dev/null; then
            exec unshare $how sh -eu "$0" mounted
        fi
    done
    echo "skipped: no right to mount a small disk"
    exit 77
fi
mount -t tmpfs -o size=4m none full
status=0
octet train train.yaml checkpoint.save_steps=1 --run-dir full/run 2>errors || status=$?
cat errors >&2
[ "$(grep -c "warning: training goes on without this checkpoint: saving step [234]: cannot save below 'full/run/checkpoints': [0-9]* bytes are free, [0-9]* are required" errors)" = 3 ]
[ "$(ls full/run/checkpoints)" = step-1 ]
octet checkpoint verify full/run >/dev/null
mount -o remount,size=40m full
octet train train.yaml checkpoint.save_steps=1 --run-dir full/run 2>errors
if grep warning errors; then
    exit 1
fi
exit "$status"
