# exit: 2
# stderr: octet: cannot verify 'part.yaml': its rules replace 9 Linear and 1 experts, 14 and 1 are required: * (--config, plan_overrides)
# Rules that leave o_proj and the whole dense layer out: its cases would find fault with each product of them.
sed -e '/self_attn.o_proj/d' -e '/layers.0.mlp/d' base.yaml >part-base.yaml
sed 's/base.yaml/part-base.yaml/; s/train_iters: 4/train_iters: 25/' train.yaml >part.yaml
octet verify --config part.yaml --case mxfp8 --ranks 1 --out verify
