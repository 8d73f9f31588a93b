# exit: 0
# stdout: *page.md
"$SOURCE_DIR/bench/run" --octet "$(command -v octet)" --try --out page.md
grep -q '^| 64x64x64 | mxfp8 | ' page.md
grep -q '^| 64x64x64 log-normal 2 | hif8 | ' page.md
grep -q '^| part | bf16 1 x 1 | mxfp8 1 x 1 | hif8 1 x 1 |$' page.md
[ "$(grep -c '^## ' page.md)" = 7 ]
[ "$(wc -l <page.jsonl)" = 35 ]
