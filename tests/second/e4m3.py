"""E4M3 ("fn"): mxfp8.md, "E4M3"."""
import bisect
import math

from f32 import bits, from_bits, NAN


def decode(code):
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return NAN
    if exponent == 0:
        return sign * math.ldexp(mantissa, -9)
    return sign * math.ldexp(8 + mantissa, exponent - 10)


VALUE = [decode(c) for c in range(256)]
_MIDDLE = [(VALUE[c] + VALUE[c + 1]) / 2 for c in range(126)] + [464.0]


def encode(x, saturate=True):
    """The code of the FP32 number x: the nearest value, ties to the even code."""
    sign = 0x80 if math.copysign(1.0, x) < 0 else 0
    if x != x:
        return sign | 0x7f
    a = abs(x)
    code = bisect.bisect_left(_MIDDLE, a)           # mid-points below |x|
    if code < len(_MIDDLE) and _MIDDLE[code] == a:
        code += code & 1                            # a tie: the even one of code and code + 1
    if saturate:
        code = min(code, 0x7e)
    return sign | code


def encode_integer(x):
    """The integer form of the page, `sat`."""
    sign = bits(x) >> 24 & 0x80
    a = bits(x) & 0x7fffffff
    if x != x:
        return sign | 0x7f
    if abs(x) > 448:
        return sign | 0x7e
    if a >= 0x3c800000:
        return sign | ((a + 0x7ffff + (a >> 20 & 1)) >> 20) - (120 << 3)
    # bits(|x| + 2^14) - bits(2^14), the sum in FP32
    return sign | bits(from_bits(a) + 16384.0) - bits(16384.0)


def klass(code):
    value = VALUE[code]
    if value != value:
        return "nan"
    if value == 0:
        return "zero"
    return "normal" if code & 0x78 else "subnormal"
