# exit: 2
# stderr: octet: *found '0x100', 0x0 to 0xff is required*
octet explain --format e4m3 0x100
