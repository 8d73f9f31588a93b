# exit: 0
# The tables agree with the golden lists of codes, whose hex floats have zeros at their ends.
for format in hif8 e4m3 e8m0; do
    octet explain --format $format --table | awk '{
        class = $NF == "two" ? 3 : 1
        print substr($1, 3) "," $(NF - class) }' | sed 's/-nan/nan/' >found
    tail -n +2 "$SOURCE_DIR/tests/golden/formats/${format}_codes.csv" | cut -d, -f1,2 |
        sed 's/\.\([0-9a-f]*[1-9a-f]\)0*p/.\1p/; s/\.0*p/p/' >wanted
    diff found wanted
done
