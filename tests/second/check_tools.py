"""`octet quantize`, `dequantize` and `matmul` against the same work done here, to the bit.

    python3 check_tools.py OCTET [long]

Tensors are random but the same in each run. `long` multiplies the cases by five.
"""
import math
import random
import struct
import sys
import tempfile

import block_product
import e4m3
import hif8
import npy
from block_product import product, remainders
from check import Check
from f32 import bf16, bf16_bits, bits, f32, mul
from tools import cut, Octet, quantize, Quantized, Tensor, describe, described

check = Check("sources", "quantize codes", "quantize scales", "quantize description", "dequantize",
              "matmul", "hand-made operands", "limits of the route",
              "limits of the unit", "coverage")
rng = random.Random(20260731)
seen = {}


def note(what):
    seen[what] = seen.get(what, 0) + 1


# ---- tensors -----------------------------------------------------------------------------------

def normal(_):
    return rng.gauss(0, 1)


def wide(width):
    """Numbers whose exponents spread: remainders, few or many."""
    return lambda _: rng.gauss(0, 1) * 2.0 ** rng.uniform(-width, width)


def any_bits(_):
    return None


def subnormal(_):
    return rng.choice((-1, 1)) * rng.randrange(1 << rng.randrange(1, 26)) * 2.0 ** -149


def sparse(i):
    return 0.0 if rng.random() < 0.9 else normal(i) * 2.0 ** rng.randrange(-12, 12)


def huge(_):
    return rng.choice((-1, 1)) * rng.uniform(0.4, 1) * 2.0 ** rng.choice((127, 128, 120, 80))


def tensor(shape, kind, specials=()):
    """A tensor of a kind, with some elements replaced by special bit patterns."""
    count = 1
    for n in shape:
        count *= n
    if kind is any_bits:
        patterns = [rng.getrandbits(32) for _ in range(count)]
    else:
        patterns = [bits(max(-3.4e38, min(3.4e38, kind(i)))) for i in range(count)]
    for p in specials:
        if count:
            patterns[rng.randrange(count)] = p
    return Tensor(shape, patterns)


NANS = (0x7fc00000, 0xffc00001, 0x7f800001)
INFS = (0x7f800000, 0xff800000)
ZEROS = (0x00000000, 0x80000000)
KINDS = (normal, wide(5), wide(14), any_bits, subnormal, sparse, huge)


# ---- quantize ----------------------------------------------------------------------------------

def canonical(pattern):
    return 0x7fc00000 if pattern & 0x7fffffff > 0x7f800000 else pattern


def compare_quantized(octet, q, prefix, where, layout="plain"):
    shape, _, raw = npy.read(octet.path(prefix + ".data.npy"))
    found = npy.halves(raw) if q.form == "bf16" else list(raw)
    if q.form == "bf16":
        found = [0x7fc0 if c & 0x7fff > 0x7f80 else c for c in found]
    check.same("quantize codes", where, shape, q.tensor.shape)
    check.same("quantize codes", where, found, q.data())
    if q.form in ("mxfp8", "hif8"):
        shape, _, raw = npy.read(octet.path(prefix + ".scale.npy"))
        check.same("quantize scales", where, shape, q.scale_shape(layout))
        if q.form == "mxfp8":
            check.same("quantize scales", where, raw.hex(), q.scale_bytes(layout).hex())
        else:
            check.same("quantize scales", where, npy.words(raw), [bits(s) for s in q.scales])
    about = described(octet, prefix)
    check.same("quantize description", where,
               [about[key] for key in ("format", "axis", "groups", "shape")],
               [q.form, q.axis, q.groups, list(q.tensor.shape)])


def compare_dequantized(octet, q, prefix, where):
    """Code times scale, one FP32 multiplication."""
    octet.run("dequantize", prefix, "-o", "back.npy")
    shape, _, raw = npy.read(octet.path("back.npy"))
    decode = hif8.VALUE if q.form == "hif8" else e4m3.VALUE
    required = []
    for number, codes in enumerate(q.codes):
        limits = list(cut(range(len(codes)), q.groups if q.groups else [len(codes)]))
        for group, rows in enumerate(limits):
            for i in rows:
                for j, c in enumerate(codes[i]):
                    if q.form == "e4m3":
                        scale = 1.0
                    elif q.form == "hif8":
                        several = len(q.scales) > 1
                        scale = q.scales[(group if q.groups else number) if several else 0]
                    elif q.axis == -1:
                        scale = byte_scale(q.scales[number][i][j // 32])
                    else:
                        scale = byte_scale(q.scales[number][group][(i - rows[0]) // 32][j])
                    required.append(canonical(bits(mul(decode[c], scale))))
    check.same("dequantize", where, (shape, npy.words(raw)), (q.tensor.shape, required))


def byte_scale(byte):
    return block_product.power(None if byte == 0xff else byte - 127)


SHAPES = ((1, 1), (3, 31), (5, 64), (33, 33), (64, 7), (70, 65), (2, 130), (97, 3))


def quantizing(octet, times):
    """Every option of quantize over every kind of numbers."""
    number = 0
    for _ in range(2 * times):
        for kind in KINDS:
            for specials in ((), ZEROS, NANS[:1] + ZEROS, INFS[:1], NANS + INFS):
                shape = SHAPES[number % len(SHAPES)]
                if number % 7 == 3:
                    shape = (2,) + shape
                groups = None
                if number % 3 == 1 and len(shape) == 2:
                    a = rng.randrange(shape[0] + 1)
                    b = rng.randrange(a, shape[0] + 1)
                    groups = rng.choice(([a, 0, shape[0] - a], [a, b - a, shape[0] - b]))
                form = ("mxfp8", "hif8", "mxfp8", "e4m3", "hif8", "bf16", "mxfp8")[number % 7]
                options = {"axis": rng.choice((-1, -2)), "role": "input", "groups": groups}
                layout = "plain"
                if form == "mxfp8":
                    options["rule"] = rng.randrange(2)
                    layout = rng.choice(("plain", "pairs"))
                if form == "hif8":
                    options["role"] = rng.choice(("input", "weight", "grad"))
                    options["saturate"] = rng.random() < 0.3
                t = tensor(shape, kind, specials)
                q = Quantized(t, form, **options)
                quantize(octet, t, form, "q", layout=layout, **options)
                where = f"case {number}: {form} {shape} {options} {layout}"
                compare_quantized(octet, q, "q", where, layout)
                if form != "bf16":
                    compare_dequantized(octet, q, "q", where)
                note(f"{form} axis {options['axis']}" if form == "mxfp8" else form)
                note(f"layout {layout}, groups {groups is not None}")
                number += 1


def sources(octet):
    """tensor-tools.md, "NPY files": what is read, and how it becomes FP32."""
    m, n = 3, 40
    numbers = [rng.gauss(0, 1) * 2.0 ** rng.randrange(-14, 14) for _ in range(m * n - 4)]
    numbers += [1 + 2.0 ** -24, 1 + 2.0 ** -24 + 2.0 ** -50, 0.0, -0.0]
    for letter, descr, round_to, words in (
            ("e", "<f2", half, []), ("e", ">f2", half, []), ("f", "<f4", f32, []),
            ("f", ">f4", f32, []), ("d", "<f8", f32, []), ("d", ">f8", f32, []),
            ("H", "<u2", brain, ["--dtype", "bf16"]), ("H", ">u2", brain, ["--dtype", "bf16"])):
        for version in (1, 2, 3):
            for fortran in (False, True):
                order = [i * n + j for j in range(n) for i in range(m)] if fortran \
                    else range(m * n)
                values = [numbers[i] for i in order]
                if letter == "H":
                    values = [bf16_bits(f32(x)) for x in values]
                if letter == "e":
                    values = [half(x) for x in values]
                npy.write_any(octet.path("source.npy"), version, descr, fortran, (m, n),
                              struct.pack(f"{descr[0]}{m * n}{letter}", *values))
                octet.run("quantize", "source.npy", "--format", "mxfp8", "--axis", "-1", *words,
                          "-o", "q")
                q = Quantized(Tensor((m, n), [bits(round_to(x)) for x in numbers]), "mxfp8")
                where = f"{descr} version {version} fortran {fortran}"
                check.same("sources", where, list(npy.read(octet.path("q.data.npy"))[2]), q.data())
                check.same("sources", where, npy.read(octet.path("q.scale.npy"))[2],
                           q.scale_bytes())


def brain(x):
    """x rounded to FP32 and then to BF16."""
    return bf16(f32(x))


def half(x):
    """x rounded to FP16."""
    return struct.unpack("e", struct.pack("e", x))[0]


# ---- matmul ------------------------------------------------------------------------------------

def fma_route_of(l, r):
    """What the FMA route gives for a product that takes the other, as FP32 numbers."""
    c = block_product.fma_product([l.numbers(i) for i in range(len(l.vectors))],
                                  [r.numbers(j) for j in range(len(r.vectors))])
    return [[mul(mul(y, l.scale), r.scale) for y in row] for row in c]


def compare_product(octet, subject, left, right, layout, groups, where):
    """octet matmul L R, now and then to BF16 too; left and right are Quantized."""
    required, routes = [], []
    if groups is None:
        pieces = [(left.operand(0), right.operand(0))]
    else:
        ends = [sum(groups[:g + 1]) for g in range(len(groups))]
        pieces = []
        for g, (first, last) in enumerate(zip([0] + ends, ends)):
            if layout == "TN":
                pieces.append((left.operand(0, first, last, g), right.operand(0, first, last, g)))
            else:
                pieces.append((left.operand(0, first, last, g), right.operand(g)))
    for g, (l, r) in enumerate(pieces):
        if layout == "TN":
            k = left.tensor.shape[0] if groups is None else groups[g]
        else:
            k = left.tensor.shape[1]
        if left.form in ("e4m3", "bf16"):
            c = block_product.fma_product(l, r)
        else:
            c, route = product(l, r, k)
            routes.append(route)
            if not route:
                note("integer route")
                note("both operands have remainders" if remainders(l) and remainders(r) else
                     "an operand has remainders" if remainders(l) or remainders(r) else
                     "no remainders")
                note("the routes differ" if fma_route_of(l, r) != c else "the routes agree")
            else:
                note("FMA route, special" if l.special or r.special else "FMA route, finite")
        required += [y for row in c for y in row]
    words = ["matmul", "l", "r", "--layout", layout]
    if groups is not None:
        words += ["--groups", ",".join(map(str, groups))]
    octet.run(*words, "--dtype", "f32", "-o", "y.npy")
    found = npy.words(npy.read(octet.path("y.npy"))[2])
    check.same(subject, f"{where}, f32, FMA {routes}", *differences(
        found, [canonical(bits(y)) for y in required]))
    if rng.random() < 0.25:
        octet.run(*words, "-o", "z.npy")
        found = npy.halves(npy.read(octet.path("z.npy"))[2])
        check.same(subject, f"{where}, bf16, FMA {routes}", *differences(
            found, [bf16_bits(y) for y in required]))


def differences(found, required):
    """Both whole if they are equal or differ in length, else the first three differing words."""
    if found == required:
        return True, True
    if len(found) != len(required):
        return len(found), len(required)
    at = [i for i, (a, b) in enumerate(zip(found, required)) if a != b]
    return ([len(at)] + [(i, f"{found[i]:x}") for i in at[:3]],
            [0] + [(i, f"{required[i]:x}") for i in at[:3]])


AXES = {"NT": (-1, -1), "NN": (-1, -2), "TN": (-2, -2)}


def shapes_of(layout, m, n, k, groups):
    left = (k, m) if layout == "TN" else (m, k)
    right = (n, k) if layout == "NT" else (k, n)
    if groups is not None and layout != "TN":
        right = (len(groups),) + right
    return left, right


def both(octet, lt, rt, form, layout, groups, roles=("input", "weight"), rule=1):
    """Quantizes both operands, here and by octet; compares; gives ours."""
    la, ra = AXES[layout]
    lg = groups if form == "hif8" or layout == "TN" else None
    rg = groups if layout == "TN" else None
    made = []
    for t, prefix, axis, role, g in ((lt, "l", la, roles[0], lg), (rt, "r", ra, roles[1], rg)):
        options = {"axis": axis, "role": role, "groups": g, "rule": rule}
        made.append(Quantized(t, form, **options))
        quantize(octet, t, form, prefix, **options)
        compare_quantized(octet, made[-1], prefix, f"operand {form} {layout} {g}")
    return made


def products(octet, times):
    """Each layout of each format over pairs of kinds; the short form takes every second one."""
    number = 0
    sizes = ((1, 1, 1), (3, 5, 31), (4, 3, 64), (5, 2, 65), (2, 7, 100), (6, 4, 130), (1, 2, 2048),
             (2, 1, 2113), (2, 2, 4200))
    for _ in range(times):
        for form in ("mxfp8", "hif8", "mxfp8", "hif8", "e4m3", "bf16"):
            for layout in ("NT", "NN", "TN"):
                for kind, other, specials in (
                        (normal, normal, ()), (wide(4), normal, ()), (normal, wide(4), ZEROS),
                        (wide(3), wide(3), ()), (wide(7), wide(7), ()), (sparse, wide(5), ()),
                        (normal, normal, NANS[:1]), (wide(2), normal, INFS[:1]),
                        (subnormal, subnormal, ()), (huge, huge, ()), (any_bits, normal, ()),
                        (huge, subnormal, ())):
                    number += 1
                    if times == 1 and number % 13 % 2:
                        continue
                    m, n, k = sizes[number % len(sizes)]
                    groups = None
                    if rng.random() < 0.5 and k < 1000:
                        rows = rng.choice(([3, 0, 5], [0, 33, 2], [1, 64, 0, 9]))
                        groups = rows
                        if layout == "TN":
                            k = sum(rows)
                        else:
                            m = sum(rows)
                    ls, rs = shapes_of(layout, m, n, k, groups)
                    roles = ("input", "weight") if layout != "TN" else ("grad", "input")
                    l, r = both(octet, tensor(ls, kind, specials), tensor(rs, other), form, layout,
                                groups, roles, rng.randrange(2) if form == "mxfp8" else 1)
                    where = f"product {number}: {form} {layout} {(m, n, k)} groups {groups}"
                    compare_product(octet, "matmul", l, r, layout, groups, where)


# ---- operands that quantize does not make --------------------------------------------------------

def by_hand(octet, form, prefix, codes, scales):
    """A quantized [M, K] tensor of axis -1 with these codes and scales, in files as octet's."""
    m, n = len(codes), len(codes[0])
    q = Quantized(tensor((m, n), normal), form)
    about = {"schema": 1, "format": form, "axis": -1, "role": "input", "groups": None,
             "shape": [m, n]}
    npy.write(octet.path(prefix + ".data.npy"), (m, n), [c for row in codes for c in row], "|u1")
    q.codes = [codes]
    if form == "mxfp8":
        q.scales = [scales]
        about.update(scale_alg=1, scale_layout="plain")
        npy.write(octet.path(prefix + ".scale.npy"), q.scale_shape(), list(q.scale_bytes()), "|u1")
    else:
        q.scales = scales
        about.update(saturate=False)
        npy.write(octet.path(prefix + ".scale.npy"), (), scales)
    describe(octet, prefix, about)
    return q


def random_codes(form, m, n, few):
    """Codes of all classes, or only those that an integer product likes."""
    if form == "mxfp8":
        choice = [c for c in range(256) if c & 0x7f != 0x7f and (not few or c & 0x7f >= 0x40)]
    else:
        choice = [c for c in range(256) if c not in (0x80, 0x6f, 0xef) and
                  (not few or 0.125 <= abs(hif8.VALUE[c]) <= 15)]
    return [[rng.choice(choice) for _ in range(n)] for _ in range(m)]


def hand_made(octet, times):
    for number in range(24 * times):
        form = ("mxfp8", "hif8")[number % 2]
        m, n, k = rng.choice(((3, 4, 40), (2, 2, 200), (2, 3, 64), (4, 1, 2100)))
        made = []
        spread = rng.choice((1, 4, 20))
        for prefix, rows in (("l", m), ("r", n)):
            few = rng.random() < 0.75
            codes = random_codes(form, rows, k, few)
            if few:                             # a few codes of any size: remainders
                for _ in range(rng.randrange(max(1, rows * k // 60))):
                    i, j = rng.randrange(rows), rng.randrange(k)
                    codes[i][j] = random_codes(form, 1, 1, False)[0][0]
            if form == "mxfp8":
                scales = [[127 + rng.randrange(-spread, spread + 1) for _ in range(-(-k // 32))]
                          for _ in range(rows)]
                if number % 4 == 0:             # a block of zeros, whose scale says nothing
                    codes[0][:32] = [rng.choice((0x00, 0x80)) for _ in range(min(32, k))]
                    scales[0][0] = rng.choice((0x00, 0xfe))
                if number % 8 == 6:
                    scales[-1][-1] = 0xff
            else:
                scales = [f32(rng.uniform(0.1, 4) * 2.0 ** rng.choice((0, -20, 30, -120, 126)))]
            made.append(by_hand(octet, form, prefix, codes, scales))
        compare_product(octet, "hand-made operands", made[0], made[1], "NT", None,
                        f"by hand {number}: {form} {(m, n, k)}")


def route_limits(octet):
    """Products just at and just beyond the limits of block-integer.md, section 5."""
    def line(k, count):
        codes = [rng.randrange(0x38, 0x68) | rng.choice((0, 0x80)) for _ in range(k)]
        codes[::32] = [0x7e] * len(codes[::32])             # so that the unit is 2^-6
        for at in rng.sample([i for i in range(k) if i % 32], count):
            codes[at] = rng.choice((0x01, 0x81))            # 2^-9
        return codes

    def run(where, k, left, lscale, right, rscale, beyond):
        """left, right: remainders of each vector. The two routes are made to differ in bits."""
        for _ in range(100):
            l = by_hand(octet, "mxfp8", "l", [line(k, q) for q in left],
                        [[lscale] * -(-k // 32) for _ in left])
            r = by_hand(octet, "mxfp8", "r", [line(k, q) for q in right],
                        [[rscale] * -(-k // 32) for _ in right])
            lo, ro = l.operand(0), r.operand(0)
            whole = [[block_product.integer_sum(a, b, k) for b in ro.split()] for a in lo.split()]
            if whole != fma_route_of(lo, ro):
                break
        else:
            check.require("limits of the route", f"{where}: routes that differ", False)
        check.same("limits of the route", where, block_product.takes_fma_route(lo, ro, k), beyond)
        compare_product(octet, "limits of the route", l, r, "NT", None, where)

    for extra in (0, 1):
        beyond = extra == 1
        # 19 Q_L = K with N = 6 and M = 1, then K one less; 48 Q_R = K with M = 6 and N = 1
        run(f"rule 3 left {extra}", 209 - extra, [11], 127, [0] * 6, 127, beyond)
        run(f"rule 3 right {extra}", 240 - extra, [0] * 6, 127, [5], 127, beyond)
        # 19 Q_L N + 48 Q_R M = 19 * 10 * 3 + 48 * 4 * 2 = 954 = 159 * 2 * 3
        run(f"rule 3 both {extra}", 159, [5, 5 + extra], 127, [2, 1, 1], 127, beyond)
        # units: (E_L - 6) + (E_R - 6) = -149 and -150, 96 and 97
        run(f"rule 2 low {extra}", 64, [0] * 4, 127 - 68 - extra, [0] * 4, 127 - 69, beyond)
        run(f"rule 2 high {extra}", 64, [0] * 4, 127 + 54 + extra, [0] * 4, 127 + 54, beyond)
        # a remainder 2^-9 * 2^E counts as E - 12, on the left and on the right
        run(f"rule 2 low, remainder left {extra}", 64, [1, 0, 0], 127 - 62 - extra, [0] * 6,
            127 - 69, beyond)
        run(f"rule 2 low, remainder right {extra}", 64, [0] * 6, 127 - 69 - extra, [1, 0, 0],
            127 - 62, beyond)


def squares(form, n):
    """Codes of one block (MXFP8) or group (HiF8) whose integer bound is n, and two codes that
    count 1 each and need the finest unit: 9 * 2^-6 and 1.5 * 2^-10."""
    if form == "mxfp8":
        terms = {math.ceil(e4m3.VALUE[c] / 4): c for c in range(0x7f)}
        size, fine = 32, 0x21
    else:                                                   # T = 3: the largest is 8 .. 15
        terms = {math.ceil(hif8.VALUE[c] * 8): c for c in range(0x08, 0x40)}
        size, fine = 64, 0x75
    codes, rest = [fine] * 2, n - 2
    while rest:
        term = max(t for t in terms if t * t <= rest)
        codes.append(terms[term])
        rest -= term * term
    codes += [0] * (size - len(codes))
    assert len(codes) == size
    rng.shuffle(codes)
    return [c | rng.choice((0, 0x80)) if c else 0 for c in codes]


def unit_limits(octet):
    """Groups whose bound N is the last that fits with the largest p, and one more."""
    limit = 32767                                           # 16 N 4^6 and N 4^8 below 2^31
    for form, n, below, unit in (
            ("mxfp8", limit, None, -6), ("mxfp8", limit + 1, None, -5),
            # below: 32 times 448 with a scale 2^-d, which count ceil(401408 / 2^min(2 d, 30))
            ("mxfp8", limit - 2, 9, -6), ("mxfp8", limit - 1, 9, -5),
            ("mxfp8", limit - 1, 16, -6), ("mxfp8", limit, 16, -5),
            ("hif8", limit, None, -11), ("hif8", limit + 1, None, -10)):
        tail = [] if form == "hif8" else [0x7e if below else 0x00] * 32
        left = [squares(form, n) + tail for _ in range(12)]
        # right operands fine and large enough for dot products of more than 24 bits: another unit
        # would round some of them otherwise
        choice = range(0x28, 0x70) if form == "mxfp8" else (0x2f, 0x3f, 0x3d, 0x39)
        right = [[rng.choice(choice) for _ in range(64)] for _ in range(40)]
        if form == "mxfp8":
            l = by_hand(octet, form, "l", left, [[127, 127 - (below or 0)]] * 12)
            r = by_hand(octet, form, "r", right, [[127, 127]] * 40)
        else:
            l, r = (by_hand(octet, form, name, codes, [1.0])
                    for name, codes in (("l", left), ("r", right)))
        where = f"{form} N {n} below {below}"
        check.same("limits of the unit", where, {g[0].unit for g in l.operand(0).split()}, {unit})
        compare_product(octet, "limits of the unit", l, r, "NT", None, where)


def coverage(names):
    for name in names:
        check.require("coverage", f"{name}: {seen.get(name, 0)} cases", seen.get(name, 0) > 1)


with tempfile.TemporaryDirectory() as folder:
    program = Octet(sys.argv[1], folder)
    repeat = 5 if sys.argv[2:] == ["long"] else 1
    quantizing(program, repeat)
    sources(program)
    products(program, repeat)
    hand_made(program, repeat)
    route_limits(program)
    unit_limits(program)
coverage(("mxfp8 axis -1", "mxfp8 axis -2", "hif8", "e4m3", "bf16", "layout plain, groups True",
          "layout pairs, groups True", "layout plain, groups False", "layout pairs, groups False",
          "integer route", "no remainders", "an operand has remainders",
          "both operands have remainders", "the routes differ", "FMA route, special",
          "FMA route, finite"))
print(", ".join(f"{name}: {count}" for name, count in sorted(seen.items())))
check.end()
