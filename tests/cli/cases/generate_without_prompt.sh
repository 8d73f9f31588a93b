# exit: 2
# stderr: octet: --prompt TEXT is required
octet generate run
