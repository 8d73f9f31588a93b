"""The number formats against tests/golden/formats: every vector, every bit.

    python3 check_formats.py GOLDEN_FOLDER
"""
import csv
import math
import os
import random
import struct
import sys
from fractions import Fraction

import block_product
import e4m3
import e8m0
import hif8
import mx
from check import Check
from f32 import bits, chain, f32, fma, from_bits, INF

check = Check("e4m3 codes", "hif8 codes", "e8m0 codes",
              "e4m3 encode nosat", "e4m3 encode sat", "e4m3 encode, integer form", "e4m3 of BF16",
              "hif8 encode nosat", "hif8 encode sat", "hif8 encode, integer form", "hif8 of BF16",
              "mx scale", "mx scale, integer form", "mx blocks", "mx tensors",
              "hif8 scale", "hif8 amax", "hif8 tensors", "hif8 groups",
              "mxfp8 products", "hif8 products", "fma",
              "tables of the pages", "examples of the pages")
folder = os.path.join(sys.argv[1], "formats")


def rows(name):
    with open(os.path.join(folder, name), newline="", encoding="ascii") as f:
        yield from csv.DictReader(f)


def numbers(text):
    """FP32 numbers of concatenated hex words."""
    return [from_bits(int(text[i:i + 8], 16)) for i in range(0, len(text), 8)]


def hexed(codes):
    return bytes(codes).hex()


def word(x):
    return f"{bits(x):08x}"


def same_value(text, value):
    if text == "nan":
        return value != value
    return float.fromhex(text) == value if text not in ("inf", "-inf") else float(text) == value


def exact_f32(x):
    """The FP32 number nearest to a Fraction, by integers alone."""
    if x == 0:
        return 0.0
    a, e = abs(x), -149
    while a / Fraction(2) ** e >= 2 ** 24:              # the exponent of the last bit
        e += 1
    n = round(a / Fraction(2) ** e)                     # nearest, ties to even
    value = math.ldexp(n, e)
    return math.copysign(INF if value >= 2.0 ** 128 else value, x)


def fma_rounds_once():
    """f32.fma against exact arithmetic: sums a hair beside a mid-point of FP32, and others."""
    rng = random.Random(7)
    for i in range(3000):
        a, b = (1 + rng.randrange(1 << 23) * 2.0 ** -23 for _ in range(2))
        c = rng.uniform(-4, 4) * 2.0 ** rng.randrange(-30, 30)
        if i % 30 == 0:                                 # a b is half way itself: 2^25 - 1
            a, b, c = 31.0, 1082401.0, rng.choice((-1, 1)) * 2.0 ** -40
        elif i % 3:                                     # a b = 1 - n^2 / 2^46, c even: half way
            n = rng.randrange(1, 1 << 11) * (i % 3 - 1)
            a, b = 1 + n * 2.0 ** -23, 1 - n * 2.0 ** -23
            c = rng.choice((-1, 1)) * rng.randrange(1 << 23, 1 << 24) * 2.0
        e = rng.choice((0, 0, -60, -75, 51, 52) if i % 300 else (0,))   # as is, subnormal, near overflow
        a, b, c = a * 2.0 ** e, b * 2.0 ** e, c * 4.0 ** e
        a, b, c = rng.choice((-1, 1)) * f32(a), f32(b), f32(c)
        if i % 300 == 0:                                # half way between FLT_MAX and 2^128
            a, b, c = a * 2.0 ** 50, 1082401.0 * 2.0 ** 53, c * 2.0 ** 20
        if not abs(a * b) + abs(c) < INF:
            continue
        exact = exact_f32(Fraction(a) * Fraction(b) + Fraction(c))
        check.same("fma", f"{a.hex()} {b.hex()} {c.hex()}", bits(fma(a, b, c)), bits(exact))
        check.same("fma", f"chain {a.hex()} {b.hex()} {c.hex()}", bits(chain(c, [a], [b])),
                   bits(exact))


def codes():
    """decode(): value and class of all 256 codes."""
    for row in rows("e4m3_codes.csv"):
        c = int(row["code"], 16)
        check.require("e4m3 codes", row["code"], same_value(row["value"], e4m3.decode(c)))
        check.same("e4m3 codes", row["code"], e4m3.klass(c), row["class"])
    for row in rows("hif8_codes.csv"):
        c = int(row["code"], 16)
        check.require("hif8 codes", row["code"], same_value(row["value"], hif8.decode(c)))
        check.same("hif8 codes", row["code"], hif8.klass(c), row["class"])
    for row in rows("e8m0_codes.csv"):
        value = e8m0.decode(int(row["code"], 16))
        check.require("e8m0 codes", row["code"], same_value(row["value"], value))


def encoding():
    """encode() by the definition and by the integer form of the page."""
    for name, form in (("e4m3", e4m3), ("hif8", hif8)):
        for row in rows(f"{name}_encode.csv"):
            x = from_bits(int(row["fp32"], 16))
            if x != x:                        # a FP64 NaN keeps the sign, not the payload
                x = float("nan") if int(row["fp32"], 16) >> 31 == 0 else -float("nan")
            check.same(f"{name} encode nosat", row["fp32"], f"{form.encode(x, False):02x}",
                       row["code_nosat"])
            check.same(f"{name} encode sat", row["fp32"], f"{form.encode(x, True):02x}",
                       row["code_sat"])
            column = "code_sat" if form is e4m3 else "code_nosat"
            check.same(f"{name} encode, integer form", row["fp32"],
                       f"{form.encode_integer(x):02x}", row[column])
        with open(os.path.join(folder, f"{name}_bf16.hex"), encoding="ascii") as f:
            golden = bytes.fromhex(f.read().replace("\n", ""))
        for b in range(0x10000):
            check.same(f"{name} of BF16", f"{b:04x}", form.encode(from_bits(b << 16)), golden[b])


def mx_blocks():
    for row in rows("mx_amax.csv"):
        amax = from_bits(int(row["amax"], 16))
        for rule in (0, 1):
            golden = int(row[f"scale_alg{rule}"], 16)
            if not amax < INF:
                check.same("mx scale", row["amax"], mx.quantize_block([amax], rule)[0], golden)
                continue
            check.same("mx scale", row["amax"], mx.scale_byte(amax, rule), golden)
            check.same("mx scale, integer form", row["amax"],
                       mx.scale_byte_integer(amax, rule), golden)
    for row in rows("mx_blocks.csv"):
        for rule in (0, 1):
            byte, block = mx.quantize_block(numbers(row["x"]), rule)
            check.same("mx blocks", f"id {row['id']} rule {rule}", f"{byte:02x} {hexed(block)}",
                       f"{row[f'scale_alg{rule}']} {row[f'codes_alg{rule}']}")


def page_tables():
    """The tables of 128 codes on the pages, and their worked examples."""
    spec = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/spec")
    for page, form in (("mxfp8.md", e4m3), ("hif8.md", hif8)):
        with open(os.path.join(spec, page), encoding="utf-8") as f:
            lines = [line for line in f if line.startswith("| **")]
        for line in lines:
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            row = int(cells[0].strip("*_"), 16)
            for column, cell in enumerate(cells[1:]):
                value = form.VALUE[row * 16 + column]
                written = math.prod(power_of(part) for part in cell.split("*"))
                check.require("tables of the pages", f"{page} {row:x}{column:x}",
                              written == value or written != written and value != value)
    # mxfp8.md: a block with amax 959.5632 that also holds 957
    for rule, scale, value in ((0, 2.0, 896.0), (1, 4.0, 960.0)):
        byte, block = mx.quantize_block([f32(959.5632), 957.0], rule)
        check.same("examples of the pages", f"rule {rule}",
                   (e8m0.decode(byte), e4m3.VALUE[block[1]] * scale), (scale, value))
    # block-integer.md 3.4
    codes = [0x7e, 0x38, 0x01, 0xb9] + [0] * 28 + [0x70, 0x2b, 0x05] + [0] * 29
    group = block_product.mxfp8_group([e4m3.VALUE[c] for c in codes], [0, -3], 0)
    check.same("examples of the pages", "group", (group.unit, group.m[:4], group.m[32:35],
                                                  [at for at, _ in group.left]),
               (-6, [28672, 64, 0, -72], [1024, 0, 0], [2, 33, 34]))


def power_of(text):
    base, _, exponent = text.partition("^")
    return float(base) ** int(exponent or 1)


def cases(name):
    """Cases of a .txt file: (words of the first line, {letter: lines after it})."""
    with open(os.path.join(folder, name), encoding="ascii") as f:
        lines = [line.split() for line in f]
    head = None
    for line in lines:
        if line[:1] == ["case"]:
            head, body = line, []
        elif line == ["end"]:
            yield head, body
        elif line:
            body.append(line)


def option(head, name):
    return head[head.index(name) + 1]


def tensors():
    for head, body in cases("mx_tensors.txt"):
        x = [numbers(line[1]) for line in body if line[0] == "x"]
        golden = [line[1] for line in body if line[0] == "c"]
        scale = next(line[1] for line in body if line[0] == "s")
        n, rule = int(option(head, "cols")), int(option(head, "alg"))
        if option(head, "axis") == "-1":
            c, s = mx.quantize_row(x, rule)
            stored = mx.stored_row(s, n)
        else:
            c, s = mx.quantize_col(x, n, None, rule)
            stored = mx.stored_col(s, n, [len(x)])
        where = " ".join(head)
        check.same("mx tensors", where, [hexed(line) for line in c], golden)
        check.same("mx tensors", where, stored.hex(), scale)


def hif8_tensors():
    for row in rows("hif8_scale.csv"):
        scale = hif8.scale_of(from_bits(int(row["amax"], 16)), float(row["format_max"]))
        check.same("hif8 scale", row["amax"], word(scale), row["scale"])
    for row in rows("hif8_quant.csv"):
        x = [numbers(row["x"])]
        amax = hif8.amax_of(x[0])
        if amax == amax:
            check.same("hif8 amax", row["id"], word(amax), row["amax"])
        else:
            check.require("hif8 amax", row["id"], int(row["amax"], 16) & 0x7fffffff > 0x7f800000)
        for column, saturate in (("codes", False), ("codes_sat", True)):
            c, scale = hif8.quantize(x, float(row["format_max"]), saturate)
            check.same("hif8 tensors", f"id {row['id']} {column}", f"{word(scale)} {hexed(c[0])}",
                       f"{row['scale']} {row[column]}")
    for head, body in cases("hif8_groups.txt"):
        x = [numbers(line[1]) for line in body if line[0] == "x"]
        golden = [line[1] for line in body if line[0] == "c"]
        ends = [int(e) for e in option(head, "group_ends").split(",")]
        found, scales = [], ""
        for first, last in zip([0] + ends, ends):
            c, scale = hif8.quantize(x[first:last], float(option(head, "format_max")))
            found += [hexed(line) for line in c]
            scales += word(scale)
        check.same("hif8 groups", " ".join(head), found, golden)
        check.same("hif8 groups", " ".join(head), scales,
                   next(line[1] for line in body if line[0] == "s"))


def columns(matrix, cols):
    return [[row[j] for row in matrix] for j in range(cols)]


def operand(form, vectors, format_max):
    """Vectors (along the contraction) as an operand of the product."""
    if form == "mxfp8":
        return block_product.mxfp8_operand(*mx.quantize_row(vectors))
    return block_product.hif8_operand(*hif8.quantize(vectors, format_max))


def products():
    """Products of the golden files: FP64 references, so |c - y| <= (k + 4) * 2^-24 * abs."""
    for name in ("gemm_dense.txt", "gemm_grouped.txt"):
        for head, body in cases(name):
            form, kind = head[1], head[2]
            matrix, at = {}, 0
            while at < len(body):
                label, m, n = body[at][0], int(body[at][1]), int(body[at][2])
                lines = ["".join(line) for line in body[at + 1:at + 1 + m]] if n else [""] * m
                matrix[label] = (lines, n)
                at += 1 + (m if n else 0)

            def operand_rows(label):
                return [numbers(line) for line in matrix[label][0]]

            ends = [int(e) for e in option(head, "group_ends").split(",")] if "grouped" in kind \
                else [int(option(head, "m"))]
            n, k = int(option(head, "n")), int(option(head, "k"))
            result = []
            for g, (first, last) in enumerate(zip([0] + ends, ends)):
                if "fprop" in kind:
                    left = operand_rows("x")[first:last]
                    right, length = operand_rows("w")[g * n:g * n + n], k
                    maxima = (15.0, 15.0)
                elif "dgrad" in kind:
                    left = operand_rows("dy")[first:last]
                    right, length = columns(operand_rows("w")[g * n:g * n + n], k), n
                    maxima = (224.0, 15.0)
                else:
                    left = columns(operand_rows("dy")[first:last], n)
                    right, length = columns(operand_rows("x")[first:last], k), last - first
                    maxima = (224.0, 15.0)
                c, _ = block_product.product(operand(form, left, maxima[0]),
                                             operand(form, right, maxima[1]), length)
                result += [(row, length) for row in c]
            y = [struct.unpack(f">{len(line) // 16}d", bytes.fromhex(line))
                 for line in matrix["y"][0]]
            bound = [numbers(line) for line in matrix["abs"][0]]
            check.same(f"{form} products", " ".join(head), len(result), len(y))
            for i, (row, length) in enumerate(result):
                worst = [j for j, c in enumerate(row)
                         if not abs(c - y[i][j]) <= (length + 4) * 2 ** -24 * bound[i][j]]
                check.same(f"{form} products", f"{' '.join(head)} row {i}", worst, [])


fma_rounds_once()
codes()
encoding()
page_tables()
mx_blocks()
tensors()
hif8_tensors()
products()
check.end()
