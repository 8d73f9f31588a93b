"""Products and linear layers: training-step.md, section 4."""
import block_product
import hif8
import mx
from f32 import add, sum_from


def columns(rows, width):
    return [[row[j] for row in rows] for j in range(width)]


def operand(form, vectors, format_max):
    """An 8-bit operand whose vectors run along the contraction (section 4.2)."""
    if form == "mxfp8":
        return block_product.mxfp8_operand(*mx.quantize_row(vectors))
    return block_product.hif8_operand(*hif8.quantize(vectors, format_max))


class Counter:
    """Products that took the FMA route."""
    fma_routes = 0


def multiply(form, left, left_max, right, right_max, k):
    """c of section 4. left, right: vectors of numbers, or a weight's operand."""
    if form is None:
        return block_product.fma_product(left, right)
    if not isinstance(left, block_product.Operand):
        left = operand(form, left, left_max)
    if not isinstance(right, block_product.Operand):
        right = operand(form, right, right_max)
    c, route = block_product.product(left, right, k)
    Counter.fma_routes += route
    return c


class Weight:
    """The compute copy of a matrix: what its two products read."""

    def __init__(self, form, rows, r):
        """rows: the FP32 master. form: None for high precision. r: rounding to act."""
        self.form, self.height, self.width = form, len(rows), len(rows[0])
        if form is None:
            self.fprop = [[r(x) for x in row] for row in rows]
            self.dgrad = columns(self.fprop, self.width)
        else:
            self.fprop = operand(form, rows, hif8.FORMAT_MAX["weight"])
            self.dgrad = operand(form, columns(rows, self.width), hif8.FORMAT_MAX["weight"])


def forward(x, weight, r, bias=None):
    """y = x W^T + b, rounded to act."""
    if not x:
        return []
    c = multiply(weight.form, x, 15.0, weight.fprop, 15.0, weight.width)
    if bias is None:
        return [[r(y) for y in row] for row in c]
    return [[r(add(y, b)) for y, b in zip(row, bias)] for row in c]


def backward(dy, x, weight, r):
    """(dx rounded to act, dW in FP32)."""
    if not x:
        return [], [[0.0] * weight.width for _ in range(weight.height)]
    c = multiply(weight.form, dy, 224.0, weight.dgrad, 15.0, weight.height)
    dw = multiply(weight.form, columns(dy, weight.height), 224.0, columns(x, weight.width), 15.0,
                  len(x))
    return [[r(v) for v in row] for row in c], dw


def bias_gradient(dy):
    return [sum_from(column, 0.0) for column in zip(*dy)]
