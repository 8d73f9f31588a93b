# exit: 2
# stderr: octet: *model.layers.1.mlp.gate*torch.nn.Linear*
cat >gate.yaml <<'Y'
base: train.yaml
low_precision:
  enabled: true
plan_overrides:
  - match: "model.layers.*.mlp.gate"
    when: low_precision
    module_type: torch.nn.Linear
    exact_type: true
    replace_module:
      _target_: hyper_models.components.training.low_precision.modules.linear.replace_low_precision_linear
Y
octet train gate.yaml --run-dir run || { status=$?; [ ! -e run ]; exit "$status"; }
