# exit: 0
# stdout: MX training active with recipe hif8
# stdout: hif8 MoE training enabled
# stdout: \[NPU-CONVERTER\] Applied 'npu_gmm' : 1 replacements
# stdout: Swapped to MXLinear_NPU layers
# stdout: \[MXFP8/HiF8 GMM\] Replaced 1 NPU GMM methods/functions.
# stdout: Converted MoE layers matching FQNs \['experts'\] to use dynamic hif8 quantization with scaled grouped GEMMs
sed 's/"mxfp8" /"hif8" /' guide_linear_and_experts.toml >hif8.toml
octet train train.toml hif8.toml --training.steps 1
