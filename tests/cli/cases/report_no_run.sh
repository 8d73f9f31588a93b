# exit: 2
# stderr: octet: *model*
octet report model
