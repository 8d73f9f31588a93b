# exit: 1
# stdout: *format tests are allowed*
mkdir project
cp -r "$SOURCE_DIR/src" "$SOURCE_DIR/include" "$SOURCE_DIR/scripts" project/
echo 'static int is_hif8(int format) { return format == OCT_FORMAT_HIF8; }' >>project/src/lifecycle/quantized_weights.c
project/scripts/check-layers
