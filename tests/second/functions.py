"""Elementary functions: functions.md, sections 1 to 3."""
import math
from fractions import Fraction

from f32 import add, bits, bits64, div, f32, fma, from_bits, from_bits64, INF, mul, NAN, sub

hexf = float.fromhex


def nearest(x):
    """c(x): the FP64 number nearest to a Fraction."""
    return float(Fraction(x))


def fma64(a, b, c):
    """a * b + c in FP64 with one rounding."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c                    # a zero with the sign that IEEE gives it
    return float(exact)


def inverse_factorial(n):
    return nearest(Fraction(1, math.factorial(n)))


# ---- section 1: FP32 -----------------------------------------------------------------------------

_EXP = [hexf(t) for t in ("0x1.123980p-7", "0x1.5558f6p-5", "0x1.555492p-3", "0x1.fffffcp-2")] + [1.0, 1.0]
_EXP_FIRST = hexf("0x1.6a1e6ep-10")
_LOG2E = hexf("0x1.715476p+0")
_MAGIC = hexf("0x1.8p23")
_LN2_HIGH, _LN2_LOW = hexf("-0x1.62e430p-1"), hexf("0x1.05c610p-29")


def exp(x):
    if x != x:
        return NAN
    x = max(min(x, 89.0), -104.0)
    n = sub(fma(x, _LOG2E, _MAGIC), _MAGIC)
    r = fma(n, _LN2_HIGH, x)
    r = fma(n, _LN2_LOW, r)
    p = _EXP_FIRST
    for c in _EXP:
        p = fma(p, r, c)
    return f32(p * 2.0 ** int(n))


_LOG = [hexf(t) for t in ("0x1.24924ap-2", "0x1.99999ap-2", "0x1.555556p-1")]


def log(x):
    if x != x or x == INF:
        return x
    if x <= 0:
        return -INF if x == 0 else NAN
    d = 0
    if x < 2.0 ** -126:
        x, d = mul(x, 2.0 ** 23), 23
    b = bits(x) - 0x3f3504f3
    e = float((b >> 23) - d)
    f = sub(from_bits((b & 0x7fffff) + 0x3f3504f3), 1.0)
    s = div(f, add(2.0, f))
    z = mul(s, s)
    p = hexf("0x1.c71c72p-3")
    for c in _LOG:
        p = fma(p, z, c)
    h = mul(mul(0.5, f), f)
    t = mul(s, fma(p, z, h))
    return fma(e, hexf("0x1.62e400p-1"), add(sub(fma(e, hexf("0x1.7f7d1cp-20"), t), h), f))


def sigmoid(x):
    e = exp(-abs(x))
    return div(1.0, add(1.0, e)) if x >= 0 else div(e, add(1.0, e))


# ---- section 2: FP32 sine and cosine -------------------------------------------------------------

def _quadrant(j, r):
    z = r * r
    if j % 2 == 0:
        p = inverse_factorial(17)
        for n, sign in ((15, -1), (13, 1), (11, -1), (9, 1), (7, -1), (5, 1), (3, -1)):
            p = fma64(p, z, sign * inverse_factorial(n))
        value = fma64(p * z, r, r)
    else:
        p = inverse_factorial(16)
        for n, sign in ((14, -1), (12, 1), (10, -1), (8, 1), (6, -1), (4, 1), (2, -1), (0, 1)):
            p = fma64(p, z, sign * inverse_factorial(n))
        value = p
    return -value if j >= 2 else value


def _reduce(x):
    assert abs(x) < 2.0 ** 30
    k = fma64(x, hexf("0x1.45f306dc9c883p-1"), hexf("0x1.8p52")) - hexf("0x1.8p52")
    r = fma64(k, hexf("-0x1.1a62633145c07p-54"), fma64(k, hexf("-0x1.921fb54442d18p+0"), x))
    return int(k), r


def sin(x):
    if x == 0:
        return x
    k, r = _reduce(x)
    return f32(_quadrant(k % 4, r))


def cos(x):
    k, r = _reduce(x)
    return f32(_quadrant((k + 1) % 4, r))


# ---- section 3: FP64 -----------------------------------------------------------------------------

def exp64(x):
    x = max(min(x, 710.0), -746.0)
    n = fma64(x, hexf("0x1.71547652b82fep+0"), hexf("0x1.8p52")) - hexf("0x1.8p52")
    r = fma64(n, hexf("-0x1.62e42fefa39efp-1"), x)
    r = fma64(n, hexf("-0x1.abc9e3b39803fp-56"), r)
    p = inverse_factorial(13)
    for i in range(12, -1, -1):
        p = fma64(p, r, inverse_factorial(i))
    try:
        return float(Fraction(p) * Fraction(2) ** int(n))
    except OverflowError:
        return INF


def log64(x):
    if x != x or x == INF:
        return x
    if x <= 0:
        return -INF if x == 0 else NAN
    d = 0
    if x < 2.0 ** -1022:
        x, d = x * 2.0 ** 54, 54
    b = bits64(x) - 0x3fe6a09e667f3bcd
    e = float((b >> 52) - d)
    f = from_bits64((b & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1
    s = f / (2 + f)
    z = s * s
    p = 0.0
    for i in range(10, 0, -1):
        p = fma64(p, z, nearest(Fraction(2, 2 * i + 1)))
    h = 0.5 * f * f
    t = s * fma64(p, z, h)
    return fma64(e, hexf("0x1.62e42fefa3800p-1"), (fma64(e, hexf("0x1.ef35793c76730p-45"), t) - h) + f)


def pow64(x, y):
    return 1.0 if y == 0 else exp64(y * log64(x))


def powi(x, n):
    power = 1.0
    while n > 0:
        if n % 2:
            power = power * x
        x = x * x
        n //= 2
    return power


def cospi(x):
    """cos(pi x), 0 <= x <= 1."""
    if x > 0.5:
        return -cospi(1 - x)
    pi = hexf("0x1.921fb54442d18p+1")
    y = pi * (0.5 - x) if x > 0.25 else pi * x
    z = y * y
    first = 17 if x > 0.25 else 16
    p = inverse_factorial(first)
    sign = -1
    for n in range(first - 2, -1, -2):
        p = fma64(p, z, sign * inverse_factorial(n))
        sign = -sign
    return y * p if x > 0.25 else p
