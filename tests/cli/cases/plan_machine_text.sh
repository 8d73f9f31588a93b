# exit: 0
# stdout: a step on *, 1 threads a rank, * ranks a node:
# stdout:   total * s
# stdout: tokens per second: *, communication: 0.0 % of a step
octet plan train.yaml training.threads=1 --machine="$SOURCE_DIR/configs/machines/epyc-zen5.yaml"
