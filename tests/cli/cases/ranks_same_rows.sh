# exit: 0
# Two ranks under the launcher write the rows that one rank writes, to the bit, and one checkpoint.
words="training.micro_batch_size=1 training.global_batch_size=4"
octet train train.yaml $words --run-dir one >/dev/null
octet launch -n 2 -- train train.yaml $words --run-dir two >/dev/null 2>launched
grep -q '^launch: .*OMP_NUM_THREADS=[0-9]* .*-n 2 --oversubscribe --bind-to none .* train train.yaml' launched
rows() {
    sed 's/.*\("attempt": [0-9]*\).*\("loss": [^,]*, "grad_norm": [^,]*\).*/\1 \2/' "$1/metrics.jsonl"
}
rows one >one.rows
rows two >two.rows
grep -q loss one.rows
cmp one.rows two.rows
octet checkpoint verify two/checkpoints/step-* >/dev/null
ls two/checkpoints/step-*/__1_0.distcp >/dev/null
