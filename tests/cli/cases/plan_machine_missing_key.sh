# exit: 2
# stderr: octet: cannot use machine 'machine.yaml': 'copy' is not there, a finite number > 0 is required
sed '/^copy:/d' "$SOURCE_DIR/configs/machines/epyc-zen5.yaml" >machine.yaml
octet plan train.yaml --machine machine.yaml
