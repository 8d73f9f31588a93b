# exit: 2
# stderr: octet: *found ' 1.5', a number or a code 0x.. is required*
for word in 0x-0 0x+2b 0x0x2b '0x 2b' 0x2g 0x; do
    status=0
    octet explain --format hif8 "$word" >report 2>error || status=$?
    [ $status = 2 ]
    grep -qF "found '$word', 0x0 to 0xff is required" error
done
octet explain --format hif8 0X2B >report
octet explain --format hif8 ' 1.5'
