# exit: 0
# The linear layers that were converted, counted by walking the modules.
octet plan train.toml guide_linear_and_experts.toml --print-modules >modules.txt
[ "$(grep -c '  LowPrecisionLinear$' modules.txt)" = 14 ]
[ "$(grep -c '  DeepseekV3LowPrecisionExperts$' modules.txt)" = 1 ]
grep -q '^lm_head  torch.nn.Linear$' modules.txt
octet plan train.toml guide_linear.toml --print-modules --quantize.linear.mx.filter_fqns= >modules.txt 2>/dev/null
grep -q '^lm_head  LowPrecisionLinear$' modules.txt
