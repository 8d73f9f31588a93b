# exit: 2
# stderr: octet: unknown action 'list', ls, verify, show or hash is required
octet checkpoint list run
