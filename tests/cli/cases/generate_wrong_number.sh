# exit: 2
# stderr: octet: wrong --top-p: found '1.5', a number from * to 1 is required
octet generate run --prompt x --top-p 1.5
