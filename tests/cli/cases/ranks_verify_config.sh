# exit: 0
# stdout: 16.6 *passed*
out=$PWD/verify
cd "$SOURCE_DIR"
octet verify --config configs/verify.yaml --case hif8_current --quick --ranks 2 --out "$out"
tr -d '\n' <"$out/report.json" | json_check cases.0.id=16.6 cases.0.status=passed runs.0.format=hif8 runs.#=2
