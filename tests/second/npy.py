"""NPY files, as far as octet's tools read and write them."""
import ast
import math
import struct

FORMAT = {"<f4": "f", "|u1": "B", "<u2": "H", "<f8": "d"}


def write(path, shape, values, dtype="<f4"):
    """A file of version 1, C order. values: all elements in order; for <u2 bit patterns."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        f.write(struct.pack(f"{len(values)}{FORMAT[dtype]}", *values))


def write_bits(path, shape, patterns):
    """A file of FP32 numbers given as bit patterns (NaN payloads survive)."""
    write(path, shape, [], "<f4")
    with open(path, "ab") as f:
        f.write(struct.pack(f"<{len(patterns)}I", *patterns))


def write_any(path, version, descr, fortran, shape, raw):
    """A file of any version, dtype and order."""
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)!r}, }}"
    size = "<H" if version == 1 else "<I"
    text += " " * (-(8 + struct.calcsize(size) + len(text) + 1) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY" + bytes([version, 0]) + struct.pack(size, len(text)) + text.encode())
        f.write(raw)


def read(path):
    """(shape, dtype, raw bytes of the elements)."""
    with open(path, "rb") as f:
        data = f.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", path
    length, = struct.unpack("<H", data[8:10])
    header = ast.literal_eval(data[10:10 + length].decode())
    assert header["fortran_order"] is False, path
    raw = data[10 + length:]
    size = struct.calcsize(FORMAT[header["descr"]])
    assert len(raw) == size * math.prod(header["shape"]), path
    return header["shape"], header["descr"], raw


def words(raw):
    """FP32 bit patterns of raw bytes."""
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


def floats(raw):
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def halves(raw):
    return list(struct.unpack(f"<{len(raw) // 2}H", raw))
