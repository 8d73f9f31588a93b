# exit: 0
# stdout: *trained*
octet train train.toml --training.gc-freq 7 --model.converters quantize.linear.mx --training.steps 1 \
    >/dev/null 2>err
[ "$(grep -c '^octet: warning: ' err)" = 2 ]
grep -q "^octet: warning: training.gc_freq has no effect: there is no garbage collector (training.gc_freq=7)$" err
grep -q "^octet: warning: quantize.linear.mx converts the head too: 'output' is not in quantize.linear.mx.filter_fqns (default)$" err
echo trained
