# exit: 2
# stderr: octet: *65536*
octet explain --format bf16 --table
