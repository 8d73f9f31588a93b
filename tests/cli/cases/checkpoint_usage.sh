# exit: 2
# stderr: octet: unknown action 'list', ls, verify or show is required
octet checkpoint list run
