"""Random numbers: functions.md, section 4."""
import math
from fractions import Fraction

from f32 import bits64, f32, from_bits64
from functions import hexf, inverse_factorial, nearest

MASK32 = 0xffffffff
MASK64 = 0xffffffffffffffff


def mix(z):
    z = z + 0x9e3779b97f4a7c15 & MASK64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK64
    z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK64
    return z ^ z >> 31


def fnv(text):
    h = 0xcbf29ce484222325
    for b in text.encode():
        h = (h ^ b) * 0x100000001b3 & MASK64
    return h


def stream(seed, name):
    return mix(fnv(name) ^ mix(seed))


def block(key, n):
    """Four words: Philox4x32-10."""
    c0, c1, c2, c3 = n & MASK32, n >> 32 & MASK32, 0, 0
    k0, k1 = key & MASK32, key >> 32
    for _ in range(10):
        p, q = 0xd2511f53 * c0, 0xcd9e8d57 * c2
        c0, c1, c2, c3 = q >> 32 ^ c1 ^ k0, q & MASK32, p >> 32 ^ c3 ^ k1, p & MASK32
        k0, k1 = k0 + 0x9e3779b9 & MASK32, k1 + 0xbb67ae85 & MASK32
    return c0, c1, c2, c3


def u64(key, i):
    w = block(key, i >> 1)
    return w[3] << 32 | w[2] if i & 1 else w[1] << 32 | w[0]


_LN = [nearest(Fraction(1, n)) for n in (9, 7, 5, 3, 1)]
_COS = [s * inverse_factorial(n) for n, s in ((8, 1), (6, -1), (4, 1), (2, -1), (0, 1))]
_SIN = [s * inverse_factorial(n) for n, s in ((9, 1), (7, -1), (5, 1), (3, -1), (1, 1))]


def _ln(w):
    u = w + 0.5
    b = bits64(u) - 0x3fe6a09e667f3bcd
    e = (b >> 52) - 32
    m = from_bits64((b & 0xfffffffffffff) + 0x3fe6a09e667f3bcd)
    s = (m - 1) / (m + 1)
    z = s * s
    q = nearest(Fraction(1, 11))
    for c in _LN:
        q = c + z * q
    return e * hexf("0x1.62e42fefa39efp-1") + 2 * s * q


def _cos_sin(w):
    j = (w + 0x20000000 & MASK32) >> 30
    x = w - (j << 30) & MASK32
    x = (x - (1 << 32) if x >> 31 else x) * hexf("0x1.921fb54442d18p-30")
    z = x * x
    c, s = -inverse_factorial(10), -inverse_factorial(11)
    for a in _COS:
        c = a + z * c
    for a in _SIN:
        s = a + z * s
    s = x * s
    return ((c, s), (-s, c), (-c, -s), (s, -c))[j]


def normals(seed, name, count, std):
    """The first `count` normal numbers of a stream, FP32."""
    key = stream(seed, name)
    out = []
    for n in range(-(-count // 4)):
        w = block(key, n)
        for a, b in ((w[0], w[1]), (w[2], w[3])):
            radius = math.sqrt(-2 * _ln(a)) * std
            c, s = _cos_sin(b)
            out += [f32(radius * c), f32(radius * s)]
    return out[:count]
