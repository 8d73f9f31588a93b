# exit: 2
# stderr: octet: *self_attn.q_prj*q_proj*bad-base.yaml:*
sed 's/self_attn.q_proj/self_attn.q_prj/' base.yaml >bad-base.yaml
sed 's/base.yaml/bad-base.yaml/' train.yaml >bad.yaml
octet train bad.yaml low_precision.enabled=true
