# exit: 4
# stderr: octet: saving step 2: cannot create 'full/run/checkpoints/step-2.tmp-????????/.metadata': No space left on device
# stdout: saved checkpoint step-1
# A disk with room for no more files in the middle of a save, and checkpoint.on_failure: stop.
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
mount -t tmpfs -o size=40m,nr_inodes=12 none full
status=0
octet train train.yaml checkpoint.save_steps=1 checkpoint.on_failure=stop --run-dir full/run || status=$?
[ "$(ls full/run/checkpoints)" = step-1 ]
octet checkpoint verify full/run >/dev/null
# The same disk, going on: each failure is told with path and reason, training ends.
continued=0
octet train train.yaml checkpoint.save_steps=1 --run-dir full/run 2>errors || continued=$?
[ "$continued" = 4 ]
[ "$(grep -c "warning: training goes on without this checkpoint: saving step [234]: cannot create 'full/run/checkpoints/step-[234].tmp-[0-9a-f]*/.metadata': No space left on device" errors)" = 3 ]
[ "$(ls full/run/checkpoints)" = step-1 ]
octet checkpoint verify full/run >/dev/null
exit "$status"
