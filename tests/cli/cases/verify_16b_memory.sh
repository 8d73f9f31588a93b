# exit: 7
# stderr: octet: cannot train the 16b model on 8 ranks of this machine: * GiB of memory were found, 317.8 GiB are required (--model; *)
out=$PWD/verify
cd "$SOURCE_DIR"
ulimit -v 16000000
octet verify --model 16b --out "$out"
