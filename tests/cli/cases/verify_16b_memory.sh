# exit: 7
# stderr: octet: cannot train the 16b model on 8 ranks of this machine: * GiB of memory were found, 316.9 GiB are required (--model; *)
# stdout: evidence
out=$PWD/verify
mkdir "$out"
echo 'octet verify' >"$out/verify.mark"
echo evidence >"$out/report.json"
cd "$SOURCE_DIR"
code=0
(ulimit -v 16000000 && octet verify --model 16b --out "$out") || code=$?
cat "$out/report.json"
exit $code
