# exit: 0
# torchtitan's line, at step 1, every log_freq steps and at the end; a YAML job keeps its own.
octet train train.toml guide_linear.toml --training.steps 7 --metrics.log_freq 3 --run-dir run >out
grep '^step' out >lines
grep -cE '^step: [ 0-9]{2}  loss: [ 0-9]{2}\.[0-9]{5}  grad_norm: [ 0-9]{2}\.[0-9]{4}  memory: [ 0-9]{2}\.[0-9]{2}GiB\([0-9]+\.[0-9]{2}%\)  tps: [0-9]{1,3}(,[0-9]{3})*  tflops: [0-9]+\.[0-9]{2}  mfu: ([0-9]+\.[0-9]{2}%|n/a)  elapsed_time_per_step: [0-9]+\.[0-9]{3}s$' lines >count
[ "$(cat count)" = 4 ]
cut -c1-8 lines >steps
printf 'step:  %s\n' 1 3 6 7 | diff - steps
# The loss of a line is that of its row.
loss=$(sed -n 's/.*"step": 3, "loss": \([0-9.]*\),.*/\1/p' run/metrics.jsonl)
grep -q "^step:  3  loss: $(printf '%8.5f' "$loss")  " lines
octet train train.yaml --run-dir yaml >yaml.out
grep -q '^step 4/4  loss ' yaml.out
