# exit: 0
# stdout: dry-run *passed*
out=$PWD/verify
cd "$SOURCE_DIR"
octet verify --model 16b --dry-run --out "$out"
tr -d '\n' <"$out/report.json" | json_check cases.#=1 cases.0.id=dry-run cases.0.status=passed environment.model=16b
tr -d '\n' <"$out/cases/dry-run/plan-mxfp8.json" | json_check replaced.linear=196 replaced.experts=27
