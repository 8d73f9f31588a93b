# exit: 2
# stderr: octet: unknown case: found 'q3-05', one of * is required (--case)
# stdout: evidence
mkdir -p verify/runs/one
echo 'octet verify' >verify/verify.mark
echo evidence >verify/report.json
code=0
octet verify --case q3-05 --out verify || code=$?
cat verify/report.json
test -d verify/runs/one
exit $code
