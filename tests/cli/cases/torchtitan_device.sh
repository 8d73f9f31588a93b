# exit: 1
# stderr: octet: *\[MXFP8/HiF8\] is only supported on Ascend950 or higher architecture*
octet train train.toml guide_linear.toml octet.device=ascend
