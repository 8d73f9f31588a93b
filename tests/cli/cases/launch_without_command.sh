# exit: 2
# stderr: octet: no command, one is required after --
octet launch -n 2
