# exit: 3
# stderr: octet: *NUMPY*text.txt*
octet quantize text.txt --format mxfp8 --axis -1 -o x
