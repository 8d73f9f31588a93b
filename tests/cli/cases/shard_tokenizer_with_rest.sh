# exit: 3
# stderr: octet: *byte 6 of the tokenizer id is 0x78 after its end*x.bin*
{
    printf 'OCTETTOK\001\000\000\000\002\000\000\000\144\000\000\000\000\000\000\000\001\001\000\000\000\000\000\000'
    printf 'bytes\000x'
    head -c 289 /dev/zero
} >x.bin
octet train train.yaml --run-dir run dataset.path=x.bin
