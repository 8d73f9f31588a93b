# exit: 2
# stderr: octet: evidence directory is in use: held by pid 7 on here, a free one is required (*)
# stdout: evidence
# The second verification changes nothing of the first.
command -v flock >/dev/null || { echo "there is no flock"; exit 77; }
out=$PWD/verify
mkdir "$out"
echo 'octet verify' >"$out/verify.mark"
echo evidence >"$out/report.json"
exec 9>"$out/lock"
flock 9
echo 'pid 7 on here' >&9
cd "$SOURCE_DIR"
status=0
octet verify --quick --ranks 1 --case Q3-02 --out "$out" || status=$?
cat "$out/report.json"
exit "$status"
