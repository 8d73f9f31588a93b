# exit: 0
octet plan train.toml guide_linear_and_experts.toml --json >toml.json
octet plan train.yaml low_precision.enabled=true --json 2>/dev/null >yaml.json
diff toml.json yaml.json
json_check replaced.linear=14 replaced.experts=1 <toml.json
