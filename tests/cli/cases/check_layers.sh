# exit: 1
# stdout: *low_precision/weight.c:*low_precision*model*
mkdir project
cp -r "$SOURCE_DIR/src" "$SOURCE_DIR/include" "$SOURCE_DIR/scripts" project/
project/scripts/check-layers >/dev/null
echo '#include "model/deepseek_v3/deepseek_v3.h"' >>project/src/low_precision/weight.c
project/scripts/check-layers
