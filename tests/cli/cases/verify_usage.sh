# exit: 2
# stderr: octet: unknown case: found 'Q3-99', one of Q3-01, *, Q3-11, * is required (--case)
octet verify --case Q3-99 --out verify
