# exit: 3
# stderr: octet: *No such file*nothing.npy*
octet quantize nothing.npy --format mxfp8 --axis -1 -o x || { status=$?; [ ! -e x.data.npy ]; exit "$status"; }
