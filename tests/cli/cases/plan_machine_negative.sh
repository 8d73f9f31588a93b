# exit: 2
# stderr: octet: cannot use 'copy' of a machine: integer -1, a finite number > 0 is required (machine.yaml:*)
sed 's/^copy:.*/copy: -1/' "$SOURCE_DIR/configs/machines/epyc-zen5.yaml" >machine.yaml
octet plan train.yaml --machine machine.yaml
