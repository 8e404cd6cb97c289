#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets into fuzz/seeds. Run again after a change in their form."""

import gzip
import io
import zlib
from pathlib import Path

import numpy as np

SEEDS = Path(__file__).resolve().parent / "seeds"
CSV = b'x,y,name\n1,2.5,"a ""b"""\n-3,NA,"c\nd"\n,1e300,e\r\n4,5,\n'


def put(target: str, name: str, data: bytes) -> None:
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def npy(array) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def main() -> None:
    arrays = {
        "f8": np.arange(12, dtype="<f8").reshape(4, 3),
        "big": np.arange(6, dtype=">i4"),
        "fortran": np.asfortranarray(np.arange(24, dtype="<u2").reshape(2, 3, 4)),
        "scalar": np.float32(3),
    }
    # The frame of "hello\n" by the reference library, without its checksum.
    zstd = bytes.fromhex("28b52ffd0058310000") + b"hello\n"
    for name, array in arrays.items():
        put("npy", name, npy(array))
        put("dataset", f"npy-{name}", b"\x05\x00" + npy(array))
    for name, data in {
        "table": CSV,
        "semicolons": CSV.replace(b",", b";"),
        "tabs": CSV.replace(b",", b"\t"),
        "log": b"2026-01-01 INFO start\n2026-01-01 ERROR disk 7\n" * 3,
        "gzip": gzip.compress(CSV, mtime=0),
        "zstd": zstd,
        "empty": b"",
        "bom": b"\xef\xbb\xbf" + CSV,
    }.items():
        put("dataset", name, b"\x05\x00" + data)
        put("dataset", f"{name}-two-files", b"\x05\x7f" + data + data)
    for how in [0, 1, 2, 8, 16, 32, 64, 128]:
        put("delimited", f"how{how}", bytes([how, 9]) + CSV.replace(b",", b",;,|"[how & 3 : (how & 3) + 1] or b","))
    put("delimited", "comment", bytes([64, 5]) + b"# c\nx,y\n1,2\n# d\n3,4\n")
    put("delimited", "ragged", bytes([1, 5]) + b"x,y\n1\n2,3,4\n5,6\n")
    put("lines", "log", b"\x07a\nbb\r\n\nccc")
    put("records", "four", b"\x04\x02\x09" + b"hhabcdefghijkl")
    put("raw", "f4", bytes([0, 0, 2, 2, 3, 0, 7, 0]) + np.arange(6, dtype="<f4").tobytes())
    put("raw", "i2-big-fortran", bytes([3, 3, 3, 2, 2, 2, 7, 0]) + np.arange(8, dtype=">i2").tobytes())
    for name, data in {
        "gzip": gzip.compress(CSV, mtime=0),
        "members": gzip.compress(CSV, mtime=0) + gzip.compress(b"more\n", mtime=0),
        "stored": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + zlib.compress(CSV, 0)[2:-4] + zlib.crc32(CSV).to_bytes(4, "little") + len(CSV).to_bytes(4, "little"),
        "bomb": gzip.compress(b"0" * 200_000, mtime=0),
        "zstd": zstd,
        "skippable": b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + zstd,
    }.items():  # fmt: skip
        put("decode", name, data)
    for i, text in enumerate([
        "rows", "mean:x", "quantile:x,q=0.5;0.99", "hist:x,bins=10,min=0,max=1", "gram:x,y", "grep:'ERROR.*disk'",
        "grep:'a,b',fixed,ignore_case,lines,max=3", "kmeans:x,y,k=2,tol=1e-3,seed=7", "normalize:x,y,method=zscore,out=n.npy",
        "kmeans:k=20,init=random", "render:out=v.png", "entropy", "mean:'odd name'",
    ]):  # fmt: skip
        put("spec", f"{i}", text.encode())
    for i, text in enumerate([
        "x > 15 and name in ('UA', 'AA')", "y is not missing and x / y > 8", "(x < 0 or x > 1) and not name ~ '^test'",
        "`odd name` == 'a''b'", "$1 != -0.5e3", "abs(x) + min(x, y) * sqrt(2) % 3 >= floor(-y)",
        "len(name) > 3 && starts_with(lower(name), 'n') || !contains(name, \"8\")", "x not in (1, 2, 3)", "x is missing",
    ]):  # fmt: skip
        put("filter", f"{i}", text.encode())
    for which in range(23):
        put("state", f"zeros{which}", bytes([which]) + bytes(64))
        put("state", f"ones{which}", bytes([which]) + b"\x01" * 40)


if __name__ == "__main__":
    main()
