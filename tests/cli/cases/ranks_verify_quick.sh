# exit: 0
# stdout: Q3-01 *passed*
# stdout: Q3-09 *passed*
# stdout: 17.3.1 *passed*
# stdout: 17.4f *passed*
# stdout: report: */report.json
out=$PWD/verify
cd "$SOURCE_DIR"
octet verify --quick --ranks 2 --case Q3-01 --case Q3-02 --case Q3-03 --case Q3-04 --case Q3-05 --case Q3-06 \
    --case Q3-07 --case Q3-08 --case Q3-09 --case 17.3.1 --case 17.4f --out "$out"
tr -d '\n' <"$out/report.json" |
    json_check schema=1 cases.#=11 cases.0.id=Q3-01 cases.0.status=passed environment.ranks=2
