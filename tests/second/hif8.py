"""HiFloat8 and its current scaling: hif8.md."""
import bisect
import math

from f32 import bits, div, INF, NAN

FORMAT_MAX = {"input": 15.0, "weight": 15.0, "grad": 224.0}
LEAST_NORMAL = 2.0 ** -126


def _magnitude(code):
    """The value of a code 00..7f: its prefix, then the fields of "Codes"."""
    if code == 0x6f:
        return INF
    if code >> 3 == 0:
        return math.ldexp(1, code - 23) if code else 0.0
    if code >> 3 == 1:
        sign, size, k = 0, 0, 3
    elif code >> 4 == 1:
        sign, size, k = code >> 3 & 1, 1, 3
    elif code >> 5 == 1:
        sign, size, k = code >> 4 & 1, 2 + (code >> 3 & 1), 3
    elif code >> 5 == 2:
        sign, size, k = code >> 4 & 1, 4 + (code >> 2 & 3), 2
    else:
        sign, size, k = code >> 4 & 1, 8 + (code >> 1 & 7), 1
    exponent = -size if sign else size
    return math.ldexp((1 << k) + (code & (1 << k) - 1), exponent - k)


def decode(code):
    if code == 0x80:
        return NAN
    return -_magnitude(code & 0x7f) if code & 0x80 else _magnitude(code)


VALUE = [decode(c) for c in range(256)]
# Magnitudes ascending; Inf stands where 49152 would be.
_ORDER = sorted(range(128), key=lambda c: VALUE[c])
_PLACE = [49152.0 if c == 0x6f else VALUE[c] for c in _ORDER]
_MIDDLE = [(a + b) / 2 for a, b in zip(_PLACE, _PLACE[1:])]


def encode(x, saturate=False):
    """The code of the FP32 number x: the nearest value, ties away from zero."""
    if x != x:
        return 0x00 if saturate else 0x80
    code = _ORDER[bisect.bisect_right(_MIDDLE, abs(x))]
    if code == 0x6f and saturate:
        code = 0x6e
    return code | 0x80 if code and x < 0 else code


def encode_integer(x):
    """The integer form of the page, `nosat`."""
    a = bits(x) & 0x7fffffff
    sign = bits(x) >> 24 & 0x80
    if x != x:
        return 0x80
    if abs(x) >= 40960:
        return sign | 0x6f
    if abs(x) < 2.0 ** -23:
        return 0x00
    e = (a >> 23) - 127
    if e == -23:
        return sign | 0x01

    def k(e):
        return 3 if abs(e) <= 3 else 2 if abs(e) <= 7 else 1 if abs(e) <= 15 else 0

    a += 1 << 22 - k(e)
    e = (a >> 23) - 127
    if e < -15:
        return sign | e + 23
    m = (a & 0x7fffff) >> 23 - k(e)
    s = 1 if e < 0 else 0
    if e == 0:
        return sign | 0x08 | m
    if abs(e) == 1:
        return sign | 0x10 | s << 3 | m
    if abs(e) <= 3:
        return sign | 0x20 | s << 4 | abs(e) - 2 << 3 | m
    if abs(e) <= 7:
        return sign | 0x40 | s << 4 | abs(e) - 4 << 2 | m
    return sign | 0x60 | s << 4 | abs(e) - 8 << 1 | m


def klass(code):
    value = VALUE[code]
    if value != value:
        return "nan"
    if value == 0:
        return "zero"
    if abs(value) == INF:
        return "inf"
    return "subnormal" if code & 0x78 == 0 else "normal"


def amax_of(numbers):
    """The largest magnitude; NaN if any number is one, 0 if there is none."""
    largest = 0.0
    for x in numbers:
        if x != x:
            return NAN
        largest = max(largest, abs(x))
    return largest


def scale_of(amax, format_max):
    """hif8.md, "Scale"."""
    s = div(amax, format_max)
    return s if abs(amax) < INF and s >= LEAST_NORMAL else 1.0


def quantize(rows, format_max, saturate=False):
    """Codes of a matrix (a list of rows) with one scale, and that scale."""
    scale = scale_of(amax_of(x for row in rows for x in row), format_max)
    return [[encode(div(x, scale), saturate) for x in row] for row in rows], scale
