# exit: 4
# stderr: octet: no checkpoint found*(nowhere)
octet generate nowhere --prompt x
