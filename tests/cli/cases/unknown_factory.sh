# exit: 2
# stderr: octet: *somewhere.else*
sed 's/_target_: hyper_models.components.training.*/_target_: somewhere.else/' base.yaml >bad-base.yaml
sed 's/base.yaml/bad-base.yaml/' train.yaml >bad.yaml
octet plan bad.yaml low_precision.enabled=true
