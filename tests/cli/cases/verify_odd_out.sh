# exit: 0
# stdout: 16.6 *passed*
# The folder's name stands inside of configurations, where it has to be quoted.
sed 's/train_iters: 4/train_iters: 25/' train.yaml >own.yaml
octet verify --config own.yaml --case bf16 --quick --ranks 1 --out "a: [b], 'c' \"d\" #e"
