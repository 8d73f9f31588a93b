# exit: 2
# stderr: octet: entry 'Output' of quantize.linear.mx.filter_fqns matches 0 modules, *the nearest are 'output'*
octet train train.toml guide_linear.toml --quantize.linear.mx.filter_fqns=Output
