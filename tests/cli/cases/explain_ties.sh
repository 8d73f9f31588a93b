# exit: 0
# 1.0625 is half way between 1 and 1.125: away from zero in HiF8, to the even code in E4M3.
# stdout: between   1 and 1.125, mid-point 1.0625: a tie
# stdout: value     1.125 *
# stdout: value     1 *
# stdout: value     -448 *
# stdout: between   outside of the finite values
octet explain --format hif8 1.0625
octet explain --format e4m3 1.0625
octet explain --format e4m3 -500
