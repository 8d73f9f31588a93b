"""octet from NumPy through ctypes: quantize, multiply and dequantize arrays.

    python3 octet_numpy.py                      # finds liboctet.so.0 as any program does
    OCTET_LIBRARY=/opt/octet/lib/liboctet.so.0 python3 octet_numpy.py

Every structure below has the fields of its namesake in octet/*.h, in their order.
"""

import ctypes
import os

import numpy as np

MXFP8, HIF8 = 0, 1  # octet_format
ROW, COL = 0, 1  # octet_orientation
F32, BF16 = 0, 1  # octet_dtype
INPUT, WEIGHT, GRADIENT = 0, 1, 2  # octet_role
NN, NT, TN = 0, 1, 2  # octet_layout


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("message", ctypes.c_char * 1020)]


class Groups(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int64), ("ends", ctypes.POINTER(ctypes.c_int64))]


class Operand(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("orientation", ctypes.c_int),
        ("matrices", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("groups", Groups),
        ("codes", ctypes.c_void_p),
        ("codes_bytes", ctypes.c_size_t),
        ("scales", ctypes.c_void_p),
        ("scales_bytes", ctypes.c_size_t),
    ]


class QuantizeSettings(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("mx_rule", ctypes.c_int),
        ("role", ctypes.c_int),
        ("saturate", ctypes.c_int32),
        ("amax", ctypes.POINTER(ctypes.c_float)),
    ]


class Output(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("data_bytes", ctypes.c_size_t),
        ("ld", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
    ]


def open_library():
    lib = ctypes.CDLL(os.environ.get("OCTET_LIBRARY", "liboctet.so.0"))
    lib.octet_version.restype = ctypes.c_char_p
    lib.octet_context_bytes.restype = ctypes.c_size_t
    return lib


lib = open_library()


def call(function, *arguments):
    """Calls a function of octet; an error becomes an exception with its message."""
    error = Error()
    if function(*arguments, ctypes.byref(error)) != 0:
        raise ValueError(error.message.decode())


class Context:
    """Kernels and threads; owns the memory that the library's context lives in."""

    def __init__(self):
        size = lib.octet_context_bytes()
        self.memory = ctypes.create_string_buffer(size)
        self.handle = ctypes.c_void_p()
        call(lib.octet_context_init, self.memory, ctypes.c_size_t(size), None,
             ctypes.byref(self.handle))


class Quantized:
    """Codes and scales of a float32 matrix, as NumPy arrays."""

    def __init__(self, context, x, format, orientation, role=INPUT):
        x = np.ascontiguousarray(x, dtype=np.float32)
        size = ctypes.sizeof(Operand)
        self.operand = Operand(struct_bytes=size, format=format, orientation=orientation,
                               rows=x.shape[0], cols=x.shape[1])
        codes, scales, room = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
        call(lib.octet_operand_bytes, ctypes.byref(self.operand), ctypes.byref(codes),
             ctypes.byref(scales))
        call(lib.octet_quantize_workspace_bytes, ctypes.byref(self.operand), ctypes.byref(room))
        self.codes = np.empty(x.shape, dtype=np.uint8)
        if format == MXFP8:  # scale bytes in pairs, see octet/operand.h
            rows, cols = x.shape
            shape = (rows, -(-cols // 64), 2) if orientation == ROW else (-(-rows // 64), cols, 2)
            self.scales = np.empty(shape, dtype=np.uint8)
        else:
            self.scales = np.empty(1, dtype=np.float32)
        assert self.codes.nbytes == codes.value and self.scales.nbytes == scales.value
        self.operand.codes, self.operand.codes_bytes = self.codes.ctypes.data, self.codes.nbytes
        self.operand.scales, self.operand.scales_bytes = self.scales.ctypes.data, self.scales.nbytes
        settings = QuantizeSettings(struct_bytes=ctypes.sizeof(QuantizeSettings), mx_rule=1,
                                    role=role)
        target = ctypes.byref(self.operand)
        workspace = np.empty(room.value, dtype=np.uint8)
        call(lib.octet_quantize, context.handle, F32, ctypes.c_void_p(x.ctypes.data),
             ctypes.c_size_t(x.nbytes), ctypes.byref(settings),
             target if orientation == ROW else None, target if orientation == COL else None,
             ctypes.c_void_p(workspace.ctypes.data), room)

    def dequantize(self, context):
        y = np.empty(self.codes.shape, dtype=np.float32)
        call(lib.octet_dequantize, context.handle, ctypes.byref(self.operand),
             ctypes.c_void_p(y.ctypes.data), ctypes.c_size_t(y.nbytes))
        return y


def multiply(context, left, right, layout):
    """op(left) op(right) in float32: NN, NT or TN."""
    m = left.codes.shape[1 if layout == TN else 0]
    n = right.codes.shape[0 if layout == NT else 1]
    room = ctypes.c_size_t()
    sides = ctypes.byref(left.operand), ctypes.byref(right.operand), layout
    call(lib.octet_product_workspace_bytes, context.handle, *sides, None, ctypes.byref(room))
    workspace = np.empty(room.value, dtype=np.uint8)
    y = np.empty((m, n), dtype=np.float32)
    output = Output(struct_bytes=ctypes.sizeof(Output), dtype=F32, data=y.ctypes.data,
                    data_bytes=y.nbytes, ld=n)
    call(lib.octet_product, context.handle, *sides, ctypes.byref(output), None,
         ctypes.c_void_p(workspace.ctypes.data), room)
    return y


def main():
    context = Context()
    random = np.random.default_rng(1)
    x = random.standard_normal((50, 200), dtype=np.float32)
    w = random.standard_normal((70, 200), dtype=np.float32)
    print("octet", lib.octet_version().decode())
    for name, format in (("mxfp8", MXFP8), ("hif8", HIF8)):
        left = Quantized(context, x, format, ROW)
        right = Quantized(context, w, format, ROW, WEIGHT)
        y = multiply(context, left, right, NT)
        a, b = (q.dequantize(context).astype(np.float64) for q in (left, right))
        rounding = np.abs(y - a @ b.T).max()
        loss = np.sqrt(np.mean((y - x @ w.T) ** 2) / np.mean((x @ w.T) ** 2))
        print(f"{name}: first codes {left.codes[0, :8].tobytes().hex()}, "
              f"product within {rounding:.1e} of the exact one of the operands, "
              f"{100 * loss:.1f} % from that of float32")
        assert rounding < 1e-4 and loss < 0.1

    # The scale byte of a block, by the rule of docs/spec/mxfp8.md.
    block = x[0, :32]
    scale = Quantized(context, x, MXFP8, ROW).scales[0, 0, 0]
    wanted = 127 + int(np.ceil(np.log2(np.abs(block).max() / np.float32(448))))
    assert scale == wanted, (scale, wanted)
    try:
        multiply(context, left, Quantized(context, x.T, HIF8, ROW), NT)
    except ValueError as refusal:
        print("refused:", refusal)
    else:
        raise AssertionError("a product of other inner dimensions was accepted")


if __name__ == "__main__":
    main()
