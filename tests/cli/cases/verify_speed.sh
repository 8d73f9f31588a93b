# exit: 0
# stdout: * mxfp8 *x the tokens/s of BF16, *x its step time (no verdict)
# stdout: * hif8 *x the tokens/s of BF16, *x its step time (no verdict)
# stdout: Q3-11 *passed*
# `make check` prints the two ratios from the log of this test.
out=$PWD/verify
cd "$SOURCE_DIR"
octet verify --quick --ranks 1 --case Q3-11 --out "$out"
