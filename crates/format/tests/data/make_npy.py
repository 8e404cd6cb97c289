"""Makes the golden .npy files beside it with NumPy; they were made with NumPy 2.4."""

import io
from pathlib import Path

import numpy as np
from numpy.lib import format as npf

here = Path(__file__).parent


def save(name, array, version=None):
    out = io.BytesIO()
    npf.write_array(out, array, version=version)
    (here / f"{name}.npy").write_bytes(out.getvalue())


for code in "f4 f8 i1 i2 i4 i8 u1 u2 u4 u8".split():
    first = 0 if code[0] == "u" else -20
    a = (np.arange(12) * 7 + first).reshape(3, 4)
    for mark, end in ("<", "le"), (">", "be"):
        for order in "CF":
            save(f"{code}_{end}_{order}", np.array(a, dtype=mark + code, order=order))
save("scalar", np.array(2.5))
save("empty", np.zeros((0, 3)))
save("one", np.arange(5, dtype="<i2"), version=(2, 0))
save("three", np.asfortranarray(np.arange(24, dtype="<f4").reshape(2, 3, 4)), version=(3, 0))
save("odd", np.array([np.nan, -np.inf, 5e-324, -0.0, 1e308]))
save("bool", np.array([True, False]))
save("complex", np.array([1j]))
save("text", np.array(["a"]))
save("fields", np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8")]))
