# exit: 2
# stderr: octet: no MoE expert module matches fqns \['attention'\]: 0 of 1, at least 1 is required; *
octet train train.toml guide_linear_and_experts.toml --quantize.grouped_mm.mx.fqns attention
