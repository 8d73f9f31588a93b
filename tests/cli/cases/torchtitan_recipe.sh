# exit: 2
# stderr: octet: recipe_name mxfp8_cublas not in valid names \['mxfp8', 'hif8'\] (quantize.linear.mx.recipe_name, *)
octet train train.toml guide_linear.toml --quantize.linear.mx.recipe_name=mxfp8_cublas
