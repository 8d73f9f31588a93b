# exit: 0
# stdout: *format: hif8*
octet train train.yaml low_precision.enabled=true low_precision.format=hif8 low_precision.scaling=current optimizer.lr=1.2345678901234567e-3 --print-config >once.yaml
octet train once.yaml --print-config >twice.yaml
cmp once.yaml twice.yaml
cat once.yaml
