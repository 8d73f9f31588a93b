# exit: 2
# stderr: octet: *model.layers.1.mlp.experts*DeepseekV3Experts*replace_low_precision_linear*torch.nn.Linear*other.yaml:*
# A factory that cannot build from what its rule hits is refused before anything is built.
cat >other.yaml <<'Y'
base: train.yaml
low_precision:
  enabled: true
plan_overrides:
  - match: "model.layers.*.mlp.experts"
    when: low_precision
    module_type: MODULE_TYPE
    exact_type: true
    replace_module:
      _target_: hyper_models.components.training.low_precision.modules.linear.replace_low_precision_linear
Y
type=$(sed -n 's/^ *module_type: *\(.*DeepseekV3Experts\)$/\1/p' base.yaml)
sed "s/MODULE_TYPE/$type/" other.yaml >named.yaml
mv named.yaml other.yaml
octet plan other.yaml
