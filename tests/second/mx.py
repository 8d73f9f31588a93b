"""MX block scaling and the layouts of its scale bytes: mxfp8.md, "Scale of a block" and on."""
import math

import e4m3
from f32 import bits, div, f32, INF

BLOCK = 32


def scale_byte(amax, rule=1):
    """The scale byte of a block with a finite amax."""
    if amax == 0:
        return 0x00
    if rule == 0:
        exponent = math.frexp(amax)[1] - 1 - 8                  # floor(log2 amax) - 8
        return max(-127, min(127, exponent)) + 127
    s = div(amax, 448.0)
    byte = 0
    if s > 0:
        fraction, exponent = math.frexp(s)                      # s = fraction * 2^exponent
        byte = exponent + 127 - (fraction == 0.5)
    return max(0, byte)


def scale_byte_integer(amax, rule=1):
    """The integer form of the page."""
    e, m = bits(amax) >> 23, bits(amax) & 0x7fffff
    if amax == 0:
        return 0x00
    if rule == 0:
        return max(0, e - 8)
    return 0x00 if bits(amax) == 0x04600001 else max(0, e - 8 + (m > 0x600000))


def quantize_block(block, rule=1):
    """(scale byte, codes) of at most 32 FP32 numbers."""
    if any(x != x or abs(x) == INF for x in block):
        return 0xff, [0x00] * len(block)
    byte = scale_byte(max(map(abs, block), default=0.0), rule)
    factor = 2.0 ** (127 - byte)
    return byte, [e4m3.encode(f32(x * factor)) for x in block]


def quantize_line(line, rule=1):
    """Codes and scale bytes of one line that is cut into blocks of 32."""
    codes, scales = [], []
    for i in range(0, len(line), BLOCK):
        byte, block = quantize_block(line[i:i + BLOCK], rule)
        scales.append(byte)
        codes += block
    return codes, scales


def quantize_row(rows, rule=1):
    """Orientation row: codes [M][N], scales [M][ceil(N/32)]."""
    lines = [quantize_line(row, rule) for row in rows]
    return [c for c, _ in lines], [s for _, s in lines]


def quantize_col(rows, cols, groups=None, rule=1):
    """Orientation col: codes [M][N], and for each group its scales [ceil(m_g/32)][N].

    groups: numbers of rows; without groups there is one, of all rows.
    """
    codes, scales, first = [], [], 0
    for count in groups if groups is not None else [len(rows)]:
        part = rows[first:first + count]
        lines = [quantize_line([row[n] for row in part], rule) for n in range(cols)]
        codes += [[lines[n][0][i] for n in range(cols)] for i in range(count)]
        scales.append([[lines[n][1][b] for n in range(cols)] for b in range(blocks(count))])
        first += count
    return codes, scales


def blocks(n):
    return -(-n // BLOCK)


def pairs(n):
    return -(-n // 64)


def stored_row(scales, cols):
    """Bytes of orientation row "in pairs": [M, ceil(N/64), 2]."""
    return bytes(b for line in scales for b in line + [0] * (2 * pairs(cols) - len(line)))


def stored_col(scales, cols, counts):
    """Bytes of orientation col "in pairs": [P, N, 2], the groups one after the other."""
    out = bytearray()
    for group, count in zip(scales, counts):
        for p in range(pairs(count)):
            for n in range(cols):
                for b in (2 * p, 2 * p + 1):
                    out.append(group[b][n] if b < blocks(count) else 0)
    return bytes(out)


def npu_col(scales, cols, counts):
    """Bytes of the NPU's grouped form, [M/64 + G, N, 2]; 00 where no block is."""
    out = bytearray((sum(counts) // 64 + len(counts)) * cols * 2)
    first = 0
    for g, (group, count) in enumerate(zip(scales, counts)):
        for b in range(blocks(count)):
            pair_row = first // 64 + g + b // 2
            for n in range(cols):
                out[(pair_row * cols + n) * 2 + b % 2] = group[b][n]
        first += count
    return bytes(out)
