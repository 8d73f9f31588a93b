# exit: 3
# stderr: octet: *tokenizer id is not valid UTF-8*x.bin*
shard() { # the tokenizer id, 80 bytes with what follows it
    printf 'OCTETTOK\001\000\000\000\002\000\000\000\144\000\000\000\000\000\000\000\001\001\000\000\000\000\000\000'
    printf "$1"
    head -c "$2" /dev/zero
    head -c 216 /dev/zero
}
shard 'bytes' 75 >x.bin
octet train train.yaml --run-dir run dataset.path=x.bin training.train_iters=1 >/dev/null
shard 'by\377es' 75 >x.bin
octet train train.yaml --run-dir other dataset.path=x.bin
