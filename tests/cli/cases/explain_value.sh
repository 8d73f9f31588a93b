# exit: 0
# stdout: between   1.25 and 1.375, mid-point 1.3125
# stdout: code      0x0b = 0 0001 - 011 (sign, dot, exponent, mantissa)
# stdout: value     1.375 (0x1.6p+0), normal
# stdout: below     1.25 (*), code 0x0a
# stdout: above     1.5 (*), code 0x0c
octet explain --format hif8 1.37
