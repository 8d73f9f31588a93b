# exit: 0
# stdout: bfloat16 * 4 *
# stdout: hif8 * 4 *% at step *
# stdout: entropy of the token frequencies of the text: * nats per token, the loss of a model that ignores context
octet train train.yaml --run-dir a >/dev/null
octet train train.yaml low_precision.enabled=true low_precision.format=hif8 low_precision.scaling=current --run-dir b >/dev/null
octet report --data a b
