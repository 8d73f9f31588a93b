"""The block-integer product C = L R^T: block-integer.md.

An Operand is a list of vectors. Each has its K elements (values of the 8-bit format, before any
scale) and, for MXFP8, the exponent of each block of 32. Everything after that is integers, powers of
two and the FP32 operations of f32.py.
"""
import math
from operator import mul as times

import e4m3
import hif8
from f32 import add, chain, f32, fma, mul, NAN

GROUP = 64
CHUNK = 2048


class Operand:
    """vectors: lists of K element values. exponents: for MXFP8 e of each block, for HiF8 None.

    scale: the FP32 scale of HiF8. special: a NaN or Inf is among the elements or scales.
    """

    def __init__(self, vectors, exponents, scale, special):
        self.vectors, self.exponents = vectors, exponents
        self.scale, self.special = scale, special
        self._split = None

    def split(self):
        """Every vector as groups; made once (section 2)."""
        if self._split is None:
            self._split = [self._vector(i) for i in range(len(self.vectors))]
        return self._split

    def _vector(self, i):
        x = self.vectors[i]
        if self.exponents is None:
            return [hif8_group(x[k:k + GROUP], k) for k in range(0, len(x), GROUP)]
        e = self.exponents[i]
        return [mxfp8_group(x[k:k + GROUP], e[k // 32:k // 32 + 2], k)
                for k in range(0, len(x), GROUP)]

    def numbers(self, i):
        """Vector i as FP32 numbers (section 5); what reaches 2^128 is Inf."""
        x = self.vectors[i]
        if self.exponents is None:
            return x
        e = self.exponents[i]
        return [f32(v * power(e[k // 32])) for k, v in enumerate(x)]


def power(e):
    return NAN if e is None else math.ldexp(1.0, e)


def mxfp8_operand(codes, scales):
    """codes: lists of K codes; scales: lists of ceil(K/32) bytes, for each vector."""
    special = any(c & 0x7f == 0x7f for line in codes for c in line) or \
        any(b == 0xff for line in scales for b in line)
    return Operand([[e4m3.VALUE[c] for c in line] for line in codes],
                   [[None if b == 0xff else b - 127 for b in line] for line in scales], 1.0, special)


def hif8_operand(codes, scale):
    special = any(c in (0x80, 0x6f, 0xef) for line in codes for c in line)
    return Operand([[hif8.VALUE[c] for c in line] for line in codes], None, scale, special)


class Group:
    """m: 64 (or fewer) integers. unit: u, None if all elements are zero. left: (k, value) of each
    remainder, k counted in the whole vector."""

    def __init__(self, m, unit, left):
        self.m, self.unit, self.left = m, unit, left


def _integers(values, unit_of, u, first, value_of):
    """Sections 2 and 3: integer multiples of the unit, and remainders."""
    m, left = [], []
    for k, x in enumerate(values):
        t = math.ldexp(x, unit_of(k))
        if t == int(t):
            m.append(int(t))
        else:
            m.append(0)
            left.append((first + k, value_of(k)))
    return Group(m, u, left)


def _zero_group(values):
    return Group([0] * len(values), None, [])


def mxfp8_group(x, e, first):
    """Section 3.1. x: up to 64 values; e: the exponents of its one or two blocks."""
    n = [sum(math.ceil(abs(v) / 4) ** 2 for v in x[32 * j:32 * j + 32]) for j in range(len(e))]
    full = [j for j in range(len(e)) if n[j] > 0]
    if not full:
        return _zero_group(x)
    top = max(e[j] for j in full)
    total = sum(-(-n[j] // 2 ** min(2 * (top - e[j]), 30)) for j in full)
    p = max(q for q in range(7) if 16 * total * 4 ** q < 2 ** 31)
    return _integers(x, lambda k: p - (top - e[k // 32]), top - p, first,
                     lambda k: math.ldexp(x[k], e[k // 32]))


def hif8_group(x, first):
    """Section 3.2."""
    largest = max(map(abs, x))
    if largest == 0:
        return _zero_group(x)
    top = math.frexp(largest)[1] - 1
    total = sum(math.ceil(math.ldexp(abs(v), 6 - top)) ** 2 for v in x)
    p = max(q for q in range(9) if total * 4 ** q < 2 ** 31)
    u = top - 6 - p
    return _integers(x, lambda k: -u, u, first, lambda k: x[k])


def _exponents(operand):
    """Section 5, rule 2: the exponents among which lo and hi are found."""
    for groups in operand.split():
        for g in groups:
            if g.unit is not None:
                yield g.unit
            for _, v in g.left:
                yield math.frexp(v)[1] - 1 - 3


def remainders(operand):
    return sum(len(g.left) for groups in operand.split() for g in groups)


def takes_fma_route(left, right, k):
    """Section 5: True if the product is the FP32-FMA product of the same operands."""
    if left.special or right.special:
        return True
    l, r = list(_exponents(left)), list(_exponents(right))
    if l and r and (min(l) + min(r) < -149 or max(l) + max(r) > 96):
        return True
    m, n = len(left.vectors), len(right.vectors)
    return 19 * remainders(left) * n + 48 * remainders(right) * m > k * m * n


def integer_sum(left, right, k):
    """Section 4, c of two vectors given as groups."""
    c = 0.0
    for chunk in range(0, -(-k // GROUP), CHUNK // GROUP):
        l, r = left[chunk:chunk + CHUNK // GROUP], right[chunk:chunk + CHUNK // GROUP]
        for a, b in zip(l, r):
            if a.unit is not None and b.unit is not None:
                c = fma(f32(sum(map(times, a.m, b.m))), math.ldexp(1.0, a.unit + b.unit), c)
        d = 0.0
        v = [item for g in l for item in g.left]
        w = [item for g in r for item in g.left]
        if not v and not w:
            continue
        base = chunk * GROUP
        for at, value in v:
            g, i = divmod(at - base, GROUP)
            if r[g].m[i]:
                c = fma(r[g].m[i], value * 2.0 ** r[g].unit, c)
        for at, value in w:
            g, i = divmod(at - base, GROUP)
            if l[g].m[i]:
                d = fma(l[g].m[i], value * 2.0 ** l[g].unit, d)
        partner = dict(w)
        for at, value in v:
            if at in partner:
                d = fma(value, partner[at], d)
        c = add(c, d)
    return c


def product(left, right, k, bias=None):
    """C[M][N] in FP32, before a rounding to BF16, and whether the FMA route was taken."""
    route = takes_fma_route(left, right, k)
    if route:
        l = [left.numbers(i) for i in range(len(left.vectors))]
        r = [right.numbers(j) for j in range(len(right.vectors))]
        c = [[chain(0.0, a, b) for b in r] for a in l]
    else:
        c = [[integer_sum(a, b, k) for b in right.split()] for a in left.split()]
    if left.exponents is None:
        c = [[mul(mul(y, left.scale), right.scale) for y in row] for row in c]
    if bias is not None:
        c = [[add(y, b) for y, b in zip(row, bias)] for row in c]
    return c, route


def fma_product(left, right):
    """The FP32-FMA product (section 5) of vectors of FP32 numbers."""
    return [[chain(0.0, a, b) for b in right] for a in left]
