# exit: 4
# stderr: octet: no checkpoint found*(text.txt)
octet checkpoint ls text.txt
