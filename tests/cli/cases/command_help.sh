# exit: 0
# stdout: octet train CONFIG... *--resume latest|step-N|none*
octet train --help
