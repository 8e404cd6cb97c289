"""Tipsy files of any variant, written with struct and NumPy."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

SPECIES = {
    "gas": ["mass", "x", "y", "z", "vx", "vy", "vz", "rho", "temp", "hsmooth", "metals", "phi"],
    "dark": ["mass", "x", "y", "z", "vx", "vy", "vz", "eps", "phi"],
    "star": ["mass", "x", "y", "z", "vx", "vy", "vz", "metals", "tform", "eps", "phi"],
}


def record(species: str, order: str = ">", pos: str = "f4", vel: str = "f4") -> np.dtype:
    """The type of one record. `order` is `>` (standard) or `<` (native)."""
    kind = {"x": pos, "y": pos, "z": pos, "vx": vel, "vy": vel, "vz": vel}
    return np.dtype([(name, order + kind.get(name, "f4")) for name in SPECIES[species]])


def galaxy(gas: int, dark: int, star: int, seed: int = 1) -> dict[str, np.ndarray]:
    """Particles of a made-up galaxy, in doubles."""
    r = np.random.default_rng(seed)
    out = {}
    for species, n in [("gas", gas), ("dark", dark), ("star", star)]:
        table = np.zeros(n, dtype=[(name, "f8") for name in SPECIES[species]])
        for name in SPECIES[species]:
            scale = {"mass": 1e-6, "rho": 10.0, "temp": 1e4, "phi": -1.0}.get(name, 1.0)
            if name in ("x", "y", "z", "vx", "vy", "vz"):
                table[name] = r.normal(scale=scale, size=n)
            else:
                table[name] = scale * r.gamma(2.0, size=n)
        out[species] = table
    return out


def header(counts, order: str = ">", length: int = 32, time: float = 0.25) -> bytes:
    """The header of a file with so many gas, dark and star particles."""
    n = [sum(counts), *counts]
    low = [c & 0xFFFFFFFF for c in n]
    head = struct.pack(order + "dIIIII", time, low[0], 3, *low[1:])
    high = sum((c >> 32) << 8 * i for i, c in enumerate(n))
    return head + (struct.pack(order + "I", high) if length == 32 else b"")


def write(path: Path, tables: dict[str, np.ndarray], order=">", length=32, pos="f4", vel="f4", time=0.25) -> dict:
    """Writes a file, and gives back the tables as the file has them."""
    kept = {k: tables[k].astype(record(k, order, pos, vel)) for k in SPECIES}
    with open(path, "wb") as f:
        f.write(header([len(kept[k]) for k in SPECIES], order, length, time))
        for k in SPECIES:
            kept[k].tofile(f)
    return kept


def example(path: Path, gas=3000, dark=5000, star=2000, **variant) -> dict:
    """A file, standard unless told otherwise, whose numbers are so round that sums are the same in any order."""
    tables = {}
    for k, (species, n) in enumerate([("gas", gas), ("dark", dark), ("star", star)]):
        i = np.arange(n)
        table = np.zeros(n, dtype=[(name, "f8") for name in SPECIES[species]])
        for at, name in enumerate(SPECIES[species]):
            table[name] = (1 + (i * (7 + at + k)) % (97 + 2 * at)) / 128
        for at, name in enumerate(["x", "y", "z", "vx", "vy", "vz"]):
            table[name] = ((i * (37 + 2 * at) + 11 * k) % 1001 - 500 + 50 * k) / 8
        table["phi"] *= -1
        tables[species] = table
    return write(path, tables, **variant)


if __name__ == "__main__":
    import sys

    example(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
