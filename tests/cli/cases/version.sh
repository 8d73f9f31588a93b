# exit: 0
# stdout: octet [0-9]*.[0-9]*.[0-9]*
octet --version
