"""Running octet's tensor tools, and the same work done here."""
import json
import os
import subprocess

import block_product
import e4m3
import hif8
import mx
import npy
from f32 import bf16_bits, from_bits


class Octet:
    """The program, with a folder for its files."""

    def __init__(self, program, folder):
        self.program, self.folder = os.path.abspath(program), folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *words):
        environment = dict(os.environ, OMP_NUM_THREADS="2", OMP_WAIT_POLICY="passive")
        done = subprocess.run([self.program, *map(str, words)], cwd=self.folder,
                              env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"octet {' '.join(map(str, words))}: exit code {done.returncode}, "
                             f"0 is required\n{done.stderr}")
        return done.stdout


class Tensor:
    """FP32 bit patterns with a shape of two or three dims."""

    def __init__(self, shape, patterns):
        self.shape, self.patterns = tuple(shape), patterns

    def matrices(self):
        """A list of matrices (lists of rows of numbers); one where the tensor has two dims."""
        m, n = self.shape[-2:]
        count = self.shape[0] if len(self.shape) == 3 else 1
        x = [from_bits(p) for p in self.patterns]
        return [[x[(i * m + j) * n:(i * m + j + 1) * n] for j in range(m)] for i in range(count)]


class Quantized:
    """What quantize makes of a tensor, by the pages.

    codes: for each matrix its rows. scales: HiF8, a list; MXFP8, for each matrix (axis -1) rows of
    bytes, or (axis -2) for each group of rows the rows of bytes.
    """

    def __init__(self, tensor, form, axis=-1, role="input", groups=None, rule=1, saturate=False):
        self.tensor, self.form, self.axis, self.groups = tensor, form, axis, groups
        matrices = tensor.matrices()
        cols = tensor.shape[-1]
        self.scales = None
        if form == "mxfp8" and axis == -1:
            parts = [mx.quantize_row(m, rule) for m in matrices]
            self.codes, self.scales = [c for c, _ in parts], [s for _, s in parts]
        elif form == "mxfp8":
            parts = [mx.quantize_col(m, cols, groups, rule) for m in matrices]
            self.codes, self.scales = [c for c, _ in parts], [s for _, s in parts]
        elif form == "hif8":
            self._hif8(matrices, hif8.FORMAT_MAX[role], role, saturate)
        else:
            encode = e4m3.encode if form == "e4m3" else bf16_bits
            self.codes = [[[encode(x) for x in row] for row in m] for m in matrices]

    def _hif8(self, matrices, format_max, role, saturate):
        if self.groups is not None:
            units = [rows for m in matrices for rows in cut(m, self.groups)]
        elif role == "weight":
            units = matrices
        else:
            units = [[row for m in matrices for row in m]]
        parts = [hif8.quantize(rows, format_max, saturate) for rows in units]
        rows = [row for c, _ in parts for row in c]
        height = self.tensor.shape[-2]
        self.codes = [rows[i * height:(i + 1) * height] for i in range(len(matrices))]
        self.scales = [s for _, s in parts]

    def data(self):
        return [c for m in self.codes for row in m for c in row]

    def scale_bytes(self, layout="plain"):
        """The elements of PREFIX.scale.npy for MXFP8."""
        rows, cols = self.tensor.shape[-2:]
        out = b""
        for m in self.scales:
            if self.axis == -1:
                out += mx.stored_row(m, cols) if layout == "pairs" else \
                    bytes(b for line in m for b in line)
            elif layout == "plain":
                out += bytes(b for group in m for line in group for b in line)
            elif self.groups is not None:
                out += mx.npu_col(m, cols, self.groups)
            else:
                out += mx.stored_col(m, cols, [rows])
        return out

    def scale_shape(self, layout="plain"):
        """tensor-tools.md, the shapes of PREFIX.scale.npy."""
        *lead, m, k = self.tensor.shape
        if self.form == "hif8":
            return (len(self.scales),) if self.groups is not None or len(self.scales) > 1 or \
                self.per_matrix() else ()
        if self.axis == -1:
            return (*lead, m, mx.pairs(k), 2) if layout == "pairs" else (*lead, m, mx.blocks(k))
        if self.groups is None:
            return (*lead, mx.pairs(m), k, 2) if layout == "pairs" else (*lead, mx.blocks(m), k)
        if layout == "pairs":
            return (m // 64 + len(self.groups), k, 2)
        return (sum(mx.blocks(c) for c in self.groups), k)

    def per_matrix(self):
        return len(self.tensor.shape) == 3 and len(self.scales) == self.tensor.shape[0]

    def operand(self, matrix, first=0, last=None, group=None):
        """Rows first .. last-1 of a matrix as the operand whose vectors run along the axis."""
        rows = self.codes[matrix][first:last]
        cols = self.tensor.shape[-1]
        if self.axis == -1:
            vectors = rows
        else:
            vectors = [[row[n] for row in rows] for n in range(cols)]
        if self.form == "mxfp8":
            if self.axis == -1:
                scales = self.scales[matrix][first:last]
            else:
                part = self.scales[matrix][group or 0]
                scales = [[line[n] for line in part] for n in range(cols)]
            return block_product.mxfp8_operand(vectors, scales)
        if self.form == "hif8":
            at = group if group is not None and len(self.scales) > 1 else \
                matrix if len(self.scales) > 1 else 0
            return block_product.hif8_operand(vectors, self.scales[at])
        if self.form == "e4m3":
            return [[e4m3.VALUE[c] for c in v] for v in vectors]
        return [[from_bits(c << 16) for c in v] for v in vectors]


def cut(rows, counts):
    first = 0
    for count in counts:
        yield rows[first:first + count]
        first += count


def quantize(octet, tensor, form, prefix, axis=-1, role="input", groups=None, rule=1,
             saturate=False, layout="plain"):
    """Runs `octet quantize`; the source is FP32."""
    npy.write_bits(octet.path("source.npy"), tensor.shape, tensor.patterns)
    words = ["quantize", "source.npy", "--format", form, "--axis", axis, "--role", role,
             "-o", prefix]
    if groups is not None:
        words += ["--groups", ",".join(map(str, groups))]
    if rule != 1:
        words += ["--scale-alg", rule]
    if saturate:
        words += ["--saturate"]
    if layout != "plain":
        words += ["--scale-layout", layout]
    octet.run(*words)


def described(octet, prefix):
    with open(octet.path(prefix + ".json"), encoding="utf-8") as f:
        return json.load(f)


def describe(octet, prefix, about):
    with open(octet.path(prefix + ".json"), "w", encoding="utf-8") as f:
        json.dump(about, f)
