"""FP32 and BF16 arithmetic, bit for bit, on Python floats (which are FP64).

An FP32 number is held as the FP64 number of the same value. One operation in FP64, rounded to FP32
afterwards, is the FP32 operation for + - * / and sqrt (53 >= 2 * 24 + 2 bits: the second rounding
cannot see a tie that the first one made). It is not for fma, which is why fma() looks at what the
first rounding lost.
"""
import math
import struct

INF = math.inf
NAN = math.nan
FLT_MAX = float.fromhex("0x1.fffffep+127")

# Native size and order: Python refuses to overflow in '<f', in 'f' it gives infinity as IEEE does.
_FLOAT = struct.Struct("f")
_WORD = struct.Struct("I")
_DOUBLE = struct.Struct("d")
_LONG = struct.Struct("Q")
_pack, _unpack = _FLOAT.pack, _FLOAT.unpack


def f32(x):
    """x rounded to FP32: nearest, ties to even, subnormals kept, Inf beyond the range."""
    return _unpack(_pack(x))[0]


def bits(x):
    """The bit pattern of the FP32 number x."""
    return _WORD.unpack(_pack(x))[0]


def from_bits(b):
    return _unpack(_WORD.pack(b))[0]


def bits64(x):
    return _LONG.unpack(_DOUBLE.pack(x))[0]


def from_bits64(b):
    return _DOUBLE.unpack(_LONG.pack(b))[0]


def bf16_bits(x):
    """The BF16 pattern nearest to the FP32 number x, ties to even; a NaN gives 7fc0."""
    if x != x:
        return 0x7fc0
    b = bits(x)
    return (b + 0x7fff + (b >> 16 & 1)) >> 16


def bf16(x):
    """The FP32 number x rounded to BF16."""
    if x != x:
        return x
    b = _WORD.unpack(_pack(x))[0]
    return _unpack(_WORD.pack((b + 0x7fff + (b >> 16 & 1)) & 0xffff0000))[0]


def add(a, b):
    return _unpack(_pack(a + b))[0]


def sub(a, b):
    return _unpack(_pack(a - b))[0]


def mul(a, b):
    return _unpack(_pack(a * b))[0]


def quotient(a, b):
    """a / b as IEEE has it (Python raises an error where b is 0), in FP64."""
    if b != 0:
        return a / b
    if a == 0 or a != a:
        return NAN
    return math.copysign(INF, a) * math.copysign(1.0, b)


def div(a, b):
    return _unpack(_pack(quotient(a, b)))[0]


def sqrt(x):
    return f32(math.sqrt(x)) if x >= 0 else (NAN if x != 0 else x)


def _settle(p, c, s):
    """f32 of the exact p + c, where s is their FP64 sum and may have been rounded."""
    r = _unpack(_pack(s))[0]
    if s - s != 0:                          # Inf or NaN
        return r
    t = s - p
    lost = (p - (s - t)) + (c - t)          # p + c = s + lost, exactly
    if lost == 0:
        return r
    if r - r != 0:                          # s went to infinity: was it the mid-point to 2^128?
        half = float.fromhex("0x1.ffffffp+127")
        return math.copysign(FLT_MAX, s) if abs(s) == half and (lost > 0) != (s > 0) else r
    d = s - r
    other = s + d
    if d == 0 or _unpack(_pack(other))[0] != other:
        return r
    # s stands half way between two FP32 numbers, the exact sum a little to one side.
    return max(r, other) if lost > 0 else min(r, other)


def fma(a, b, c):
    """a * b + c with one rounding. a * b is exact in FP64."""
    p = a * b
    s = p + c
    if s - c == p and s - p == c:           # s is exact
        return _unpack(_pack(s))[0]
    return _settle(p, c, s)


def chain(c, a, b):
    """c = fma(a_i, b_i, c), i ascending."""
    for x, y in zip(a, b):
        p = x * y
        s = p + c
        if s - c == p and s - p == c:
            c = _unpack(_pack(s))[0]
        else:
            c = _settle(p, c, s)
    return c


def sum_from(terms, start=None):
    """The terms added one after the other; from the first one where no start is given."""
    s = start
    for x in terms:
        s = x if s is None else _unpack(_pack(s + x))[0]
    return s


def tree16(lane):
    """The sum of 16 lanes: lane_j + lane_(j+w) for w = 8, 4, 2, 1."""
    for w in (8, 4, 2, 1):
        lane = [add(lane[j], lane[j + w]) for j in range(w)]
    return lane[0]


def lanes(a, b):
    """The lane sum of a_i * b_i: element i enters lane i mod 16 with an fma."""
    return tree16([chain(0.0, a[j::16], b[j::16]) for j in range(16)])


def lane_sum(terms):
    """The lane sum of terms that are added."""
    return tree16([sum_from(terms[j::16], 0.0) for j in range(16)])
