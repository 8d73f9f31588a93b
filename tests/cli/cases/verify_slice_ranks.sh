# exit: 0
# stdout: dry-run *passed*
out=$PWD/verify
cd "$SOURCE_DIR"
octet verify --model slice --ranks 2 --dry-run --out "$out"
tr -d '\n' <"$out/report.json" | json_check cases.0.status=passed environment.model=slice environment.ranks=2
