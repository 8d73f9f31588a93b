# exit: 2
# stderr: octet: cannot write evidence to '*': it holds 1 other entries, an empty directory or that of an earlier verification is required (--out)
mkdir other
touch other/file
octet verify --case Q3-01 --out other
