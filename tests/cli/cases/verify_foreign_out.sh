# exit: 2
# stderr: octet: cannot write evidence to '*': it holds 1 other entries, an empty directory or that of an earlier verification is required (--out)
mkdir other
touch other/file
out=$PWD/other
cd "$SOURCE_DIR"
octet verify --case Q3-01 --ranks 1 --out "$out"
