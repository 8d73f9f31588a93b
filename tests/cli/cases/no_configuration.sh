# exit: 2
# stderr: octet: no configuration given, at least one file is required
octet train --run-dir run
