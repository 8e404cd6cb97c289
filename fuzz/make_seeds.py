#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets into fuzz/seeds. Run again after a change in their form."""

import gzip
import io
import json
import re
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
queue = 1
keep = 3
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

# What a node tells of a stream, without its variables.
PEER = {
    "rank": 0, "process": 4321, "presence": "here", "step": 4, "had": 0, "had_ranges": [], "had_before": 0, "dropped": 0, "bytes": 1536, "memory": 768,
    "waited_s": 0.5, "copy_cpu_s": 0.0, "is_elsewhere": False,
}  # fmt: skip
DESCRIPTION = {
    "name": "sim", "state": {"failed": {"writer": 2}}, "created": 10**18, "complete": 4, "steps": [3], "keep": 1, "queue": 2, "memory": 1 << 20, "used": 768,
    "peak": 1536, "budget": {"most": 1 << 21, "used": 768}, "variables": [], "writers": [PEER], "all_writers": 3,
    "groups": [{"group": "ana", "ranks": 3, "behind": "drop", "queue": 1, "keep": 0}, {"group": "b", "ranks": 1, "behind": "block", "queue": None, "keep": 2}],
    "readers": [PEER | {"group": "ana", "is_elsewhere": True, "node": 1, "rank_of_job": 2, "had": 2, "had_ranges": [[0, 1]]}],
}  # fmt: skip


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


def words(t: str) -> bytes:
    return number(len(t)) + t.encode()


def told(definitions: list[bytes], blocks: list[bytes], is_known: bool = False) -> bytes:
    """What a node tells of a step: that of one writer."""
    said = b"\x01" + b"".join(definitions)
    blocks = struct.pack("<BxxxI", 1, len(blocks)) + b"".join(blocks)
    known = b"\x00" if is_known else b"\x01" + number(len(said)) + said
    return number(10**18) + number(384) + number(768) + several([b"\x00" + number(checksum(said)) + known + number(len(blocks)) + blocks])


# What docs/protocol.md leaves out of its messages, by the letters that stand for it.
META = {
    "what": "file", "size": 5, "room": 4096, "mode": 420, "owner": [0, 0], "id": [1, 2, 1], "mtime": [1, 2], "ctime": [1, 2],
    "attributes": [["user.a", "00ff"], [[117, 255], ""]], "sum": 2**64 - 1,
}  # fmt: skip
LEFT = {"seconds": 8.25, "low": 6.0, "high": 11.5}
PROGRESS = {
    "action": "copy", "files_done": 1, "files": 2, "bytes_done": 3, "bytes": 4, "planned": True, "seconds": 0.5, "moved": 3, "left": LEFT,
}  # fmt: skip
STATUS = {
    "id": 5, "state": "failed", "submitted": 1.5, "started": None, "ended": 2.5, "files": 2, "files_done": 1, "bytes": 4, "bytes_done": 3,
    "skipped": 0, "failed": 1, "failures": [{"path": "/a", "error": "it is full"}], "error": "it is full", "kind": "no-space", "waits": None,
}  # fmt: skip
# And what it does not write out.
PREVIEW = {
    "files": 1, "bytes": 5, "room": 4096, "free": None, "others": 1, "removed": 0, "skipped": 0, "renamed": 0, "takes": LEFT,
    "changes": [{"does": "copy", "path": "/b"}],
}  # fmt: skip
CHECKED = {"same": 3, "differ": 1, "missing": 0, "only": 2, "names": [{"is": "only", "path": "/b"}]}
NUMBERS = {"user": 7, "connections": 1, "running": 2, "waiting": 3, "finished": 4, "failed": 5, "bytes": 6, "rate": 7.5}
FLOW_IS = {
    "flow": 3, "name": "flow", "reads": ["sim"], "writes": ["small"], "state": "failed", "job": "12", "begun": 1.5, "seconds": 0.25, "steps": 7,
    "report": {"steps": 7, "dropped": 0, "unpaired": 0, "fetched": 9, "streams": [{"stream": "small", "steps": 7, "bytes": 56}]},
    "error": {"kind": "peer", "message": "it is gone", "hint": None},
}  # fmt: skip
KEPT = {"location": "/a", "path": "/a", "kept": True, "until": 9.5, "left": 0.0, "shared": [1, 2]}


def messages(page: str, stand: dict) -> list:
    """The messages that a page shows, with what its letters stand for; those that it shows in part only are left out."""

    def word(found: re.Match) -> str:
        word = found[0]
        return word if word.startswith('"') else json.dumps(stand[word])

    shown = []
    for line, block in re.findall(r"`(\{[^`]*\})`|^```json\n(.*?)^```", page, re.S | re.M):
        said = (line or block).replace(", ...]", "]").replace("[...]", "[]").replace("{...}", "{}")
        if "..." not in re.sub(r'"[^"]*"', "", said) and '"what"' not in said:
            shown.append(json.loads(re.sub(r'"[^"]*"|\b[A-Z]+\b', word, said)))
    return shown


def name_of(said) -> str:
    """The words that lead to what is said."""
    words = []
    while isinstance(said, dict) and said and len(words) < 3:
        words.append(next(iter(said)))
        said = said[words[-1]] if len(said) == 1 else None
    return "-".join(words)


def frame(said) -> bytes:
    text = json.dumps(said).encode()
    return struct.pack("<I", len(text)) + text


def frames() -> None:
    """What programs, daemons and their pool say, from the page that describes it."""
    page = (SEEDS.parents[1] / "docs" / "protocol.md").read_text()
    said, _, sources = page.partition("## Sources on other nodes")
    request = next(m for m in messages(said, dict.fromkeys("RSPQF")) if "action" in m)
    request["options"] |= {"max_delete": 9, "checksum": True, "exclude": ["*.tmp"], "include": ["*.h5", "run/"], "min_size": 1, "max_age": 3600}
    stand = {"R": request, "S": {**STATUS, "request": request}, "P": PROGRESS, "Q": {"more": {}}, "F": FLOW_IS}
    all = [m for m in messages(said, stand) if "action" not in m]
    base = {"Far": ["node2", {"Space": ["nvme0", "/mnt/nvme"]}]}
    stand = {"B": base, "P": "run1/a.h5", "M": META, "NAME": [97, 255], "TEXT": "../b"}
    all += [{"source": m} for m in messages(sources, stand)]
    all += [{"source": {"read": m["source"]["read"] | {"silent": True}}} for m in all if "read" in m.get("source", {})]
    opened = {"shown": "/mnt/nvme", "tier": None}
    done = {**STATUS, "request": request, "state": "finished", "failed": 0, "failures": [], "error": None, "kind": None}
    all += [
        {"source": {"opened": opened}}, {"source": {"meta": None}}, {"preview": PREVIEW}, {"checked": CHECKED}, {"persisted": [KEPT]},
        {"persist": {"share": {"location": "nvme0://run1", "user": "ada"}}}, {"spaces": [{"name": "nvme0", "path": "/mnt", "read_rate": 1.5}]},
        {"admin": {"stats": {"drained": True, "users": [NUMBERS]}}}, {"standing": {"status": done, "progress": None}},
    ]  # fmt: skip
    known = {}
    for data in map(frame, all):
        known.setdefault(data, f"{name_of(json.loads(data[4:]))}-{len(known)}")
    for data, name in known.items():
        put("frames", name, data)
    put("frames", "several", b"".join(frame(m) for m in [{"nodes": {}}, {"eta": {"transfer": 5}}, {"metrics": {}}]))
    # Words of daemons of a pool.
    words = {"open": struct.pack("<I", 7) + b"ada", "data": b"x", "credit": struct.pack("<I", 9), "close": b""}
    for kind, (name, rest) in enumerate(words.items(), 1):
        put("frames", f"word-{name}", bytes([kind, kind & 1]) + struct.pack("<Q", 5) + rest)


def control() -> None:
    """What workers of the daemon say to its broker (0), and it to them (1): a packet a line."""
    kinds = [{"touches": ["nvme", "tank"], "running": 2, "ready": 5}, {"touches": [], "running": 0, "ready": 1}]
    load = {"Load": {"seen": 3, "kinds": kinds, "next": [0, 1, 0]}}
    path = {"path": "/mnt/nvme", "quota": "1TB", "jobs": "yes"}
    changes = [
        {"put": {"name": "nvme", "keys": path, "new": True}}, {"put": {"name": "nvme", "keys": {"path": "s3://b"}, "new": False}},
        {"remove": {"name": "nvme"}}, {"reset": {"name": "nvme"}}, {"job": {"job": "7", "user": 5, "dataspaces": ["nvme", "tank"]}},
        {"process": {"job": "7", "pid": 9, "start": 1}}, {"unprocess": {"pid": 9}}, {"unjob": {"job": "7"}}, {"drained": True},
        {"numbers": {"from": 3}},
    ]  # fmt: skip
    reports = {
        "load": [load, {"Load": {"seen": 2**64 - 1, "kinds": [], "next": []}}],
        "told": [{"Idle": {"served": 4}}, {"Numbers": NUMBERS}, {"Coming": {"ticket": 0, "name": "nvme", "bytes": 5}}],
        "cleared": [{"Cleared": {"dataspaces": ["nvme"]}}, {"Reach": {"node": "n2"}}, {"Manage": {"user": 1000}}, {"Count": {"ticket": 3}}],
        "admin": [{"Admin": {"ticket": i + 1, "change": change}} for i, change in enumerate(changes)],
    }
    owner = {"user": 5, "group": 5, "name": "ada", "home": "/users/ada"}
    begin = {"state": "/s", "threads": 4, "journal": 2**30, "rights": owner, "kept": "/k", "admin": False, "node": "n1"}
    no = {"kind": "usage", "message": "no", "hint": None}
    orders = {
        "begin": [{"Begin": begin}, {"Begin": {**begin, "rights": None}}, {"Serve": {"managed": False}}, {"Serve": {"managed": True}}, "Renew", "End"],
        "share": [{"Share": {"number": 2, "kinds": [[["nvme"], 2], [[], 1]], "rates": {"nvme": 1.5, "tank": None}, "full": ["tank"]}}],
        "answers": [{"Told": {"ticket": 1, "failed": no, "users": [NUMBERS]}}, {"Others": {"ticket": 2, "bytes": 9}}, {"Counted": {"ticket": 3, "running": {"nvme": 2}}}],
    }
    for first, all in [(b"\x00", reports), (b"\x01", orders)]:
        for name, packets in all.items():
            put("control", name, first + b"\n".join(json.dumps(p).encode() for p in packets))


def main() -> None:
    frames()
    control()
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
    who = words("sim") + words("readers") + number(1) + number(2)
    put("wire", "find", b"\x01\x00" + who)
    put("wire", "open", b"\x01\x01" + who + number(2**63 + 1) + b"\x02\x02\x01" + number(3) + number(2) + number(60_000) + number(4321))
    put("wire", "next", b"\x01\x02" + number(3) + b"\x01" + number(500))
    put("wire", "part", b"\x02\x00" + number(3) + number(0) + number(1) + several([number(2), number(0)]) + several([number(2), number(6)]))
    put("wire", "found", b"\x03\x00\x01" + number(2**63 + 1) + number(3) + several([number(0), number(2)]) + b"\x01\x00" + number(10**18))
    put("wire", "step", b"\x04\x00\x00" + number(3) + told([field, scalar], [*rows, block(1, [], [], 4)]))
    put("wire", "over", b"\x04\x00\x02\x01\x05" + number(16) + b"writer 1 is gone" + b"\x01" + number(4) + b"look")
    put("wire", "held", b"\x05\x00\x01" + told([field], [rows[0], *columns[2:]]))
    put("wire", "steps", b"\x06\x00" + several([number(n) for n in (3, 4, 300)]))
    kept = [b"\x01" + told([field, scalar], rows), b"\x01" + told([field, scalar], rows[:2], True), b"\x00" + told([scalar], [])]
    put("wire", "kept", b"\x07" + several(kept))
    put("wire", "settle", b"\x01\x07" + words("sim") + words("readers") + number(0) + number(2**63 + 1) + b"\x01" + number(7))
    put("wire", "remove", b"\x01\x08" + words("sim") + b"\x01")
    put("wire", "names", b"\x08\x00" + several([words("out"), words("sim")]))
    said = json.dumps(DESCRIPTION).encode()
    variables = b"\x01" + field + scalar
    put("wire", "shown", b"\x09\x00" + number(len(said)) + said + number(len(variables)) + variables)
    facts = number(2**63 + 1) + number(3) + b"\x01" + number(10**18) + number(1) + number(2) + number(1 << 20) + b"\x01" + number(4)
    givers = [number(rank) + node + number(1) + number(384) + number(192) for rank, node in ((0, b"\x00"), (2, b"\x01" + words("n2")))]
    basis = [b"\x00" + number(3), b"\x01", b"\x02"]
    takers = [words("ana") + number(r) + b"\x01" + number(4321) + b"\x01\x01" + number(1) + b + number(2) + number(192) + number(0) * 2 for r, b in enumerate(basis)]
    pulls = [words("ana") + number(0) + number(2) + number(192) + number(0) + number(4) + b"\x01"]
    pieces = [words("ana") + number(0) + words("T") + number(5000) + number(40_000)]
    lags = [words("ana") + b"\x01" + number(1) + number(3) + b"\x00"]
    stays = [words("ana") + number(3) + number(300)]
    put("wire", "share", b"\x0a\x00" + facts + b"".join(map(several, (givers, takers, pulls, pieces, lags, stays))))


if __name__ == "__main__":
    main()
