# exit: 7
# stderr: octet: cannot train 'configs/deepseek_v3_16b/common.yaml' on 8 ranks of this machine: * GiB of memory were found, 316.9 GiB are required (--config)
out=$PWD/verify
cd "$SOURCE_DIR"
ulimit -v 16000000
octet verify --config configs/deepseek_v3_16b/common.yaml --case mxfp8 --out "$out"
