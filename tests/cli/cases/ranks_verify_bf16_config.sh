# exit: 0
# stdout: 16.6 *passed*
# A file that knows BF16 alone, with a batch that two ranks cannot split.
cat >bf16.yaml <<'END'
model:
  config_name_or_path: model
training:
  train_iters: 3
  seq_length: 32
  global_batch_size: 2
  micro_batch_size: 2
  threads: 1
dataset:
  path: text.txt
END
octet verify --config bf16.yaml --case bf16 --quick --ranks 2 --out verify
tr -d '\n' <verify/report.json | json_check "environment.model=own configuration" environment.config=bf16.yaml
