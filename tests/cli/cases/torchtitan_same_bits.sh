# exit: 0
# The same job in both dialects: the same losses, gradient norms, weights and moments.
octet train train.toml guide_linear_and_experts.toml --run-dir toml >/dev/null
octet train train.yaml low_precision.enabled=true --run-dir yaml >/dev/null
for run in toml yaml; do
    sed 's/.*"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\), "lr": \([^,]*\),.*/\1 \2 \3 \4/' \
        $run/metrics.jsonl >$run.rows
    octet checkpoint hash $run/checkpoints/step-4 | cut -d' ' -f1 >$run.hash
done
[ "$(wc -l <toml.rows)" = 4 ]
diff toml.rows yaml.rows
diff toml.hash yaml.hash
diff toml/config.yaml yaml/config.yaml
# Another job has other bits.
octet train train.toml guide_linear.toml --run-dir other >/dev/null
octet checkpoint hash other/checkpoints/step-4 | cut -d' ' -f1 >other.hash
! diff other.hash toml.hash >/dev/null
