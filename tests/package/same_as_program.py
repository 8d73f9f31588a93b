"""The installed program and the installed library give the same bytes.

  same_as_program.py OCTET FOLDER_OF_EXAMPLES
"""

import subprocess
import sys

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[2])
import octet_numpy as octet  # noqa: E402

ROLES = {"input": octet.INPUT, "weight": octet.WEIGHT, "grad": octet.GRADIENT}


def quantize_both(context, name, x, format, axis, role):
    np.save("x.npy", x)
    words = ["--scale-layout", "pairs"] if format == "mxfp8" else []
    subprocess.run([sys.argv[1], "quantize", "x.npy", "--format", format, "--axis", str(axis),
                    "--role", role, "-o", name, *words], check=True)
    q = octet.Quantized(context, x, octet.MXFP8 if format == "mxfp8" else octet.HIF8,
                        octet.ROW if axis == -1 else octet.COL, ROLES[role])
    assert np.load(name + ".data.npy").tobytes() == q.codes.tobytes(), (format, axis, role)
    assert np.load(name + ".scale.npy").tobytes() == q.scales.tobytes(), (format, axis, role)
    wide = name + ".wide.npy"
    subprocess.run([sys.argv[1], "dequantize", name, "-o", wide], check=True)
    assert np.load(wide).tobytes() == q.dequantize(context).tobytes(), (format, axis, role)
    return q


def main():
    context = octet.Context()
    random = np.random.default_rng(2)
    m, n, k = 37, 41, 99
    cases = [("NT", octet.NT, (m, k), -1, (n, k), -1, "input"),
             ("NN", octet.NN, (m, k), -1, (k, n), -2, "grad"),
             ("TN", octet.TN, (k, m), -2, (k, n), -2, "grad")]
    for format in ("mxfp8", "hif8"):
        for name, layout, left_shape, left_axis, right_shape, right_axis, role in cases:
            x = random.standard_normal(left_shape, dtype=np.float32)
            w = random.standard_normal(right_shape, dtype=np.float32)
            left = quantize_both(context, "left", x, format, left_axis, role)
            right = quantize_both(context, "right", w, format, right_axis, "weight")
            subprocess.run([sys.argv[1], "matmul", "left", "right", "--layout", name, "--dtype",
                            "f32", "-o", "y.npy"], check=True)
            y = octet.multiply(context, left, right, layout)
            assert np.load("y.npy").tobytes() == y.tobytes(), (format, name)
    print("the same bytes")


main()
