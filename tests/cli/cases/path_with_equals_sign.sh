# exit: 2
# stderr: *lr*
mkdir seed=3 && cp train.yaml a=b.yaml
octet train ./seed=3/../train.yaml seed=7 --print-config >out 2>err
grep -q '^override seed=7' err
grep -q '^seed: 7' out
octet train ./a=b.yaml --print-config >out
grep -q '^seed: ' out
octet train train.yaml lr=3 --print-config # an override
