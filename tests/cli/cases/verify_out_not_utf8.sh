# exit: 2
# stderr: octet: cannot write evidence to '*?': its name is not UTF-8, *(--out)
out=$PWD/$(printf 'v\377')
cd "$SOURCE_DIR"
code=0
octet verify --dry-run --ranks 1 --out "$out" 2>"$out.err" || code=$?
LC_ALL=C tr '\377' '?' <"$out.err" >&2
exit $code
