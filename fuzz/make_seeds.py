#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets into fuzz/seeds. Run again after a change in their form."""

import gzip
import io
import struct
import zlib
from pathlib import Path

import numpy as np

SEEDS = Path(__file__).resolve().parent / "seeds"
CSV = b'x,y,name\n1,2.5,"a ""b"""\n-3,NA,"c\nd"\n,1e300,e\r\n4,5,\n'

# Every operator, with shapes that are declared.
FLOW = """
name = "all"
[read.sim]
stream = "simulation"
start = "next"
behind = "drop"
[read.sim.variables]
a = { dtype = "f32", shape = [6, 4], dims = ["y", "x"] }
b = { dtype = "i16", shape = [6, 4], dims = ["y", "x"] }
[node]
slice = { op = "select", of = "sim.a", slice = { y = "::2", x = -1 } }
row = { op = "select", of = "sim.a", slice = [1, "...", "1:3"] }
cast = { op = "cast", of = "sim.b", to = "f32" }
scale = { op = "scale", of = "cast", factor = 0.5, offset = -1.0, units = "m" }
length = { op = "magnitude", of = ["sim.a", "scale"] }
halves = { op = "split", of = "length", along = "x", parts = ["left", "right"], at = [1] }
back = { op = "merge", of = ["halves.right", "halves.left"], along = 1 }
both = { op = "merge", of = ["back", "sim.a"], new = "which" }
moments = { op = "reduce", of = "both", how = "moments", over = ["y", -1] }
last = { op = "window", of = "moments", steps = 3, every = 2, how = "mean" }
few = { op = "sample", of = "both", elements = 5, seed = 7 }
seldom = { op = "sample", of = "few", every = 4 }
mapped = { op = "map", of = ["sim.a", "few"], function = "f", dtype = "u8", shape = [2, 2], dims = ["p", "q"] }
median = { op = "kernel", of = "sim.b", kernel = "quantile:b,q=0.5" }
counts = { op = "kernel", of = ["sim.a", "scale"], kernel = "hist:a,bins=4,min=0,max=2", member = "counts", shape = [4] }
[write.each]
variables = { row = "row", slice = "slice", moments = "moments", mapped = "mapped", median = "median", counts = "counts", a = "sim.a" }
keep = 2
queue = 3
readers = 1
memory = "1GiB"
[write.last]
variables = { last = "last" }
[write.seldom]
variables = { seldom = "seldom" }
"""


def put(target: str, name: str, data: bytes) -> None:
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def npy(array) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def variable(name: str, dtype: int, shape: list[int], dims: list[str], attributes: dict[str, bytes]) -> bytes:
    """The definition of a variable of a stream; numbers are below 128."""

    def text(t: str) -> bytes:
        return bytes([len(t)]) + t.encode()

    said = text(name) + bytes([dtype, len(shape), *shape, len(dims)]) + b"".join(map(text, dims))
    return said + bytes([len(attributes)]) + b"".join(text(k) + v for k, v in sorted(attributes.items()))


def block(number: int, start: list[int], count: list[int], size: int) -> bytes:
    """A block of a variable, in segment 1 at byte 64."""
    length = size * int(np.prod(count, dtype=int))
    return struct.pack("<4Q", number, 1, 64, length) + struct.pack(f"<{2 * len(start)}Q", *start, *count)


def step(definitions: list[bytes], blocks: list[bytes]) -> bytes:
    said = b"\x01" + b"".join(definitions)
    return struct.pack("<H", len(said)) + said + struct.pack("<BxxxI", 1, len(blocks)) + b"".join(blocks)


def checksum(data: bytes) -> int:
    """CRC-64/NVME."""
    sum = 2**64 - 1
    for byte in data:
        sum ^= byte
        for _ in range(8):
            sum = (sum >> 1) ^ (0x9A6C9329AC4BC9B5 if sum & 1 else 0)
    return sum ^ (2**64 - 1)


def number(n: int) -> bytes:
    """A number in messages between nodes."""
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def several(parts: list[bytes]) -> bytes:
    return number(len(parts)) + b"".join(parts)


def told(definitions: list[bytes], blocks: list[bytes], is_known: bool = False) -> bytes:
    """What a node tells of a step: that of one writer."""
    said = b"\x01" + b"".join(definitions)
    blocks = struct.pack("<BxxxI", 1, len(blocks)) + b"".join(blocks)
    known = b"\x00" if is_known else b"\x01" + number(len(said)) + said
    return number(10**18) + number(384) + several([b"\x00" + number(checksum(said)) + known + number(len(blocks)) + blocks])


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
    parts = "".join(f'  {{ node = "n{i}", space = "nvme", path = "f/{i}", length = {n} }},\n' for i, n in enumerate([8, 4]))
    head = 'version = 1\nname = "f"\nlength = 12\n'
    put("layout", "even", f"{head}stripe = 4\nparts = [\n{parts}]\n".encode())
    put("layout", "cut", f"{head}cuts = [3, 7]\nparts = [\n{parts}]\n".encode())
    put("layout", "placed", f"{head}cuts = [3, 3, 8]\non = [0, 1, 0, 1]\nparts = [\n{parts}]\n".encode())
    put("layout", "nodes", b"nvme@rack[1-2]n[01-16],login")
    put("layout", "ranks", b"out/%03r.%%.%r.bin")
    put("flow", "small", (SEEDS.parents[1] / "examples" / "flows" / "small.toml").read_bytes())
    put("flow", "all", FLOW.encode())
    # What a rank says: of one node a sum of doubles, or of whole numbers, ends, powers.
    total, nothing = b"\x00\x05\x01\x07", b"\x00\x00\x00"
    for name, state in {
        "floats": b"\x00\x01\x02" + total + nothing,
        "wholes": b"\x01\x02\x07\x03\x08\x04",
        "ends": b"\x02\x02\x00\x01\x01\x03\x06\x00",
        "powers": b"\x03\x01\x02" + total * 2 + nothing * 2 + b"\x01\x01\x7f\x02\xff\x7f",
    }.items():
        put("flow", name, b"\x00\x01\x01\x03\x00" + state)
    snapshot = {o: struct.pack(o + "dIIIIII", 0.5, 3, 3, 1, 1, 1, 0) + bytes(range(128)) for o in "><"}
    for name, data in {"big": snapshot[">"], "little": snapshot["<"], "old": snapshot[">"][:28] + bytes(128)}.items():
        put("dataset", f"tipsy-{name}", b"\x05\x00" + data)
        for how in [0, 64, 128, 192]:
            put("tipsy", f"{name}-{how}", bytes([how, 1, 1, 1, 50, 160, 2]) + data)
    for how in range(1, 256, 14):
        put("tipsy", f"made-{how}", bytes([how | 1, 5, 9, 3, 60, 1, 2]) + bytes(range(100)))
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
    # Each kernel: a malformed state, and valid ones of its passes, plain (4) and by groups (5).
    for which in range(26):
        put("state", f"ones{which}", bytes([which, 0, 0]) + b"\x01" * 40)
        put("state", f"valid{which}", bytes([which, 0, 4]))
        put("state", f"grouped{which}", bytes([which, 0, 5]))
        put("state", f"later{which}", bytes([which, 2, 4]))
    rows = b"1,2,a\n-3,NA,\"b,c\"\n,1e300,a\nx,1,b\n4,5,\n"
    for which in range(24):
        put("run", f"kernel{which}", bytes([which, 23 - which, which, 4, 0, 9]) + rows)
    put("run", "groups", bytes([5, 13, 0, 8, 0x71, 3]) + rows * 3)
    put("run", "zstd", bytes([6, 7, 1, 16 + 4, 0x72, 30]) + rows * 3)
    put("run", "own", bytes([0, 1, 0, 3, 0x70, 5]) + b"quantile:x,q=0.25\nx < y or name = 'a'\n" + rows)
    for kind in range(0, 32, 2):
        put("parts", f"gzip{kind}", bytes([kind, 9, 40, 0, 0, 0]) + CSV)
        put("parts", f"zstd{kind}", bytes([kind + 1, 9, 40, 0, 0, 0]) + CSV)
        put("parts", f"damaged{kind}", bytes([kind, 9, 40, 1, 30, 5]) + CSV)
    for i, (pattern, text) in enumerate([
        (b"ERROR.*disk", b"a\nERROR disk\n\nERROR\ndisk"), (b"^$|b$", b"b\r\n\n\nab\nb"), (b"\\s[^x]", b"a b\na\nx a"),
        (b"ab", b"xabaxbabab"), (b"(?i)caf\xc3\xa9|\\bword\\b", b"CAF\xc3\x89 word\nsword\n"),
    ]):  # fmt: skip
        for flags in [0, 2, 3, 4, 8, 16, 32, 64]:
            put("grep", f"{i}-{flags}", bytes([flags, 3, len(pattern)]) + pattern + text)
    put("number", "all", b"1,-2.5,1e300,.5,5.,inf,-nan,+3,9007199254740993,1e-400, 7 ,0x1,1_0,4.9e-324,1.7976931348623159e308")
    for kind in range(3):
        for how in [0, 1, 3, 16]:
            lengths = bytes([40, 20, 3, 0, 9, 1, 200, 4, 201, 30])
            put("huge", f"{kind}-{how}", bytes([how, kind, 2, 200, 7, 3]) + lengths + b"head")
            put("huge", f"brick{kind}-{how}", bytes([how, kind + 0x80, 3, 9, 8, 2]) + lengths + b"head")
    field = variable("T", 1, [8, 6], ["y", "x"], {"unit": b"\x00\x01K", "n": b"\x01\x07", "of": b"\x03\x02\x01a\x01b"})
    scalar = variable("time", 0, [], [], {"at": b"\x02" + struct.pack("<d", 0.5), "all": b"\x05\x01" + bytes(8)})
    rows = [block(0, [2 * i, 0], [2, 6], 8) for i in range(4)]
    columns = [block(0, [0, i], [8, 2], 8) for i in range(5)]
    put("step", "none", step([], []))
    put("step", "rows", step([field, scalar], [*rows, block(1, [], [], 4)]))
    put("step", "overlap", step([scalar, field], [block(0, [], [], 4)] + [b"\x01" + b[1:] for b in columns]))
    put("step", "gap", step([field], [rows[0], *columns[2:]]))
    # The first byte says who hears it.
    put("wire", "talk", b"\x00\x00" + number(70))
    put("wire", "failed", b"\x00\x01\x03sim" + number(2**63 + 1) + number(2))
    put("wire", "find", b"\x01\x00\x03sim")
    put("wire", "open", b"\x01\x01\x03sim" + number(2**63 + 1) + b"\x07readers" + number(1) + number(2) + b"\x00\x01" + number(4321))
    put("wire", "next", b"\x01\x02" + number(3) + number(500))
    put("wire", "part", b"\x02\x00" + number(3) + number(0) + number(1) + several([number(2), number(0)]) + several([number(2), number(6)]))
    put("wire", "found", b"\x03\x00\x01" + number(2**63 + 1) + number(3) + several([number(0), number(2)]) + b"\x01" + number(10**18))
    put("wire", "step", b"\x04\x00\x00" + number(3) + told([field, scalar], [*rows, block(1, [], [], 4)]))
    put("wire", "over", b"\x04\x00\x02\x01\x05" + number(16) + b"writer 1 is gone" + b"\x01" + number(4) + b"look")
    put("wire", "held", b"\x05\x00\x01" + told([field], [rows[0], *columns[2:]]))
    put("wire", "steps", b"\x06\x00" + several([number(n) for n in (3, 4, 300)]))
    kept = [b"\x01" + told([field, scalar], rows), b"\x01" + told([field, scalar], rows[:2], True), b"\x00" + told([scalar], [])]
    put("wire", "kept", b"\x07" + several(kept))


if __name__ == "__main__":
    main()
