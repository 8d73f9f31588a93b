# exit: 2
# stderr: octet: wrong order of model converters: 'npu_gmm' is after it, a place before 'quantize.grouped_mm.mx' is required (model.converters, *)
octet train train.toml guide_linear_and_experts.toml --model.converters quantize.grouped_mm.mx,npu_gmm
