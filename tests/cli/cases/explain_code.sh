# exit: 0
# stdout: code      0x2b = 0 01 01 011 *
# stdout: value     11 *normal
# stdout: value     nan (nan), NaN
# stdout: value     5.96046448e-08 (0x1p-24), power of two
octet explain --format hif8 0x2b
octet explain --format hif8 0x80
octet explain --format e8m0 0x67
