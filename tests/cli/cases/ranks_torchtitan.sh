# exit: 0
# The guide's second example on two ranks: the bits of its YAML twin on one, notes and warnings told once.
octet launch -n 2 -- train train.toml guide_linear_and_experts.toml --training.gc_freq 9 --run-dir two >out 2>err
octet train train.yaml low_precision.enabled=true --run-dir one >/dev/null
for run in one two; do
    octet checkpoint hash $run/checkpoints/step-4 | cut -d' ' -f1 >$run.hash
done
diff one.hash two.hash
[ "$(grep -c '^octet: warning: training.gc_freq has no effect' err)" = 1 ]
[ "$(grep -c '^override training.gc_freq=9' err)" = 1 ]
[ "$(grep -c 'Replaced 1 NPU GMM methods/functions' out)" = 1 ]
[ "$(grep -cE '^step:  [1-4]  loss: .*  elapsed_time_per_step: [0-9.]+s$' out)" = 4 ]
