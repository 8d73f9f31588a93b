# exit: 1
# stdout: *src/fsdp/fsdp.c:*oct_mxfp8_format*
# stdout: src/fsdp may not name *
mkdir project
cp -r "$SOURCE_DIR/src" "$SOURCE_DIR/include" "$SOURCE_DIR/scripts" project/
echo 'static const void *format(void) { return &oct_mxfp8_format; }' >>project/src/fsdp/fsdp.c
project/scripts/check-layers
