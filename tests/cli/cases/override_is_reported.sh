# exit: 0
octet train train.yaml seed=7 --print-config >out 2>err
grep -q '^override seed=7' err
grep -q '^seed: 7' out
