# exit: 2
# stderr: octet: unknown key 'atention' of a machine: the nearest known key is 'attention' (machine.yaml:*)
sed 's/^attention:/atention:/' "$SOURCE_DIR/configs/machines/epyc-zen5.yaml" >machine.yaml
octet plan train.yaml --machine machine.yaml
