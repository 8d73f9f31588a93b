# exit: 0
# The guide's second example and the same job in YAML: one resolved configuration, in each format.
for recipe in mxfp8 hif8; do
    octet train train.toml guide_linear_and_experts.toml --print-config \
        quantize.linear.mx.recipe_name=$recipe --quantize.grouped_mm.mx.recipe-name $recipe >toml.txt
    format="low_precision.format=mxfp8_e4m3 low_precision.scaling=mx_block"
    [ $recipe = mxfp8 ] || format="low_precision.format=hif8 low_precision.scaling=current"
    # shellcheck disable=SC2086
    octet train train.yaml low_precision.enabled=true $format --print-config >yaml.txt
    diff toml.txt yaml.txt
    octet train toml.txt --print-config 2>/dev/null | diff - toml.txt
done
