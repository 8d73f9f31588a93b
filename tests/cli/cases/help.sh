# exit: 0
# stdout: *octet train CONFIG*
# stdout: *octet checkpoint ls|verify|show|hash DIR*
octet --help
