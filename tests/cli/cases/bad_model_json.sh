# exit: 2
# stderr: octet: *model/config.json*
echo '{"model_type": "deepseek_v3", ' >model/config.json
octet train train.yaml
