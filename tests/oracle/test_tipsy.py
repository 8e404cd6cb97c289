"""Tipsy snapshots, against pynbody, pytipsy and NumPy."""

import collections
import json
import math
import re
import sys
import warnings

import numpy as np
import pynbody
import pytest
import pytipsy
from tipsy_files import SPECIES, galaxy, header, write

COUNTS = (700, 1500, 300)
VARIANTS = [
    (order, length, pos, vel)
    for order in "><"
    for length in (32, 28)
    for pos, vel in [("f4", "f4"), ("f8", "f4"), ("f8", "f8")]
]


def column(tables, name):
    """A column as the schema has it, those that have no value left out."""
    if "." in name:
        species, field = name.split(".")
        return tables[species][field].astype("f8")
    return np.concatenate([tables[k][name].astype("f8") for k in SPECIES if name in SPECIES[k]])


def columns():
    shared = dict.fromkeys(name for names in SPECIES.values() for name in names)
    return [*shared, *(f"{k}.{name}" for k in SPECIES for name in SPECIES[k])]


@pytest.mark.parametrize("order, length, pos, vel", VARIANTS)
def test_every_column_of_every_variant(stead, tmp_path, order, length, pos, vel):
    kept = write(tmp_path / "run.00128", galaxy(*COUNTS), order, length, pos, vel)
    names = columns()
    specs = [f"{kernel}:{name}" for name in names for kernel in ("count", "sum", "min", "max")]
    got = stead.results("run.00128", "rows", *specs, chunk="4KiB", threads=2)
    want = [sum(COUNTS)]
    for name in names:
        v = column(kept, name)
        want += [len(v), math.fsum(v), v.min(), v.max()]
    assert got == want
    found = json.loads(stead("describe", "run.00128", "--format", "json").stdout)
    assert found["format"] == "tipsy"
    kinds = {c["name"]: c["kind"] for c in found["columns"]}
    assert kinds["x"] == {"binary": "f64" if pos == "f8" else "f32"}
    details = found["details"]
    assert [details[k] for k in SPECIES] == list(COUNTS)
    assert details["header bytes"] == length and details["time"] == 0.25


@pytest.mark.parametrize("species", SPECIES)
@pytest.mark.parametrize("order, pos", [(">", "f4"), ("<", "f8")])
def test_kernels_on_one_species(stead, tmp_path, species, order, pos):
    """Everything that runs on columns, as on a table of the same numbers."""
    kept = write(tmp_path / "s.tipsy", galaxy(*COUNTS), order, 32, pos, "f4")
    table = kept[species]
    np.save(tmp_path / "t.npy", np.column_stack([table[n].astype("f8") for n in SPECIES[species]]))
    names = ",".join(SPECIES[species])
    specs = [
        "rows", "mean:*", "var:*", "std:mass", "gram:x,y,z,exact", "quantile:vx,q=0.1;0.5;0.9", "hist:phi,bins=7,min=-9,max=0",
        "kmeans:x,y,z,k=3,init=first", "min:z", "max:z",
    ]  # fmt: skip
    got = stead.results("s.tipsy", *specs, species=species, chunk="8KiB", threads=2)
    want = stead.results("t.npy", *specs, names=names)
    assert got == want
    # The same columns beside those of all particles.
    both = [s.replace(":", f":{species}.") for s in ("mean:vx", "var:vx", "min:z", "max:z")]
    plain = [s.replace(f"{species}.", "") for s in both]
    assert stead.results("s.tipsy", *both) == stead.results("t.npy", *plain, names=names)
    kept_rows = f"{species}.x > 0 and species == '{species}'"
    assert stead.result("s.tipsy", "rows", where=kept_rows) == int((table["x"] > 0).sum())
    stead.results("s.tipsy", "normalize:x,y,out=n.npy", species=species)
    xy = np.column_stack([table["x"], table["y"]]).astype("f8")
    low, high = xy.min(0), xy.max(0)
    np.testing.assert_allclose(np.load(tmp_path / "n.npy"), (xy - low) / (high - low), rtol=1e-12, atol=1e-15)


def entropy(data: bytes) -> float:
    counts = collections.Counter(data)
    return -math.fsum(n / len(data) * math.log2(n / len(data)) for n in counts.values())


def line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n"))


# What each kernel says of the columns `x` and `y` of a species (all of it: their values, the records as bytes, the bytes
# that are scanned), as NumPy and Python have it. `normalize` writes a file, and `render` is refused.
def near(want):
    return pytest.approx(want, rel=1e-12)


EVERY = {
    "rows": ("rows", lambda x, y, records, data: len(records)),
    "count": ("count:x", lambda x, y, records, data: len(x)),
    "sum": ("sum:x", lambda x, y, records, data: math.fsum(x)),
    "mean": ("mean:x", lambda x, y, records, data: math.fsum(x) / len(x)),
    "var": ("var:x", lambda x, y, records, data: near(np.var(x, ddof=1))),
    "std": ("std:x", lambda x, y, records, data: near(np.std(x, ddof=1))),
    "min": ("min:x", lambda x, y, records, data: x.min()),
    "max": ("max:x", lambda x, y, records, data: x.max()),
    "quantile": ("quantile:x,exact", lambda x, y, records, data: np.quantile(x, 0.5, method="inverted_cdf")),
    "lines": ("lines", lambda x, y, records, data: line_count(data)),
    "digits": ("digits", lambda x, y, records, data: {str(d): data.count(b"%d" % d) for d in range(10)}),
    "entropy": ("entropy", lambda x, y, records, data: near(entropy(data))),
    # A record is what is searched, and ^ its start.
    "grep": (r"grep:'(?-u:^[^\x35]|\x0a.\x3f)'", lambda x, y, records, data: sum(
        bool(re.search(rb"^[^\x35]|\x0a[^\n]\x3f", r)) for r in records)),
}  # fmt: skip


@pytest.mark.parametrize("species", [None, *SPECIES])
@pytest.mark.parametrize("order, pos", [(">", "f4"), ("<", "f8")])
def test_every_kernel_of_the_command(stead, tmp_path, species, order, pos):
    kept = write(tmp_path / "s.std", galaxy(*COUNTS), order, 32, pos, "f4")
    kinds = [species] if species else list(SPECIES)
    records = [r.tobytes() for k in kinds for r in kept[k]]
    data = b"".join(records) if species else (tmp_path / "s.std").read_bytes()
    x, y = (np.concatenate([kept[k][name].astype("f8") for k in kinds]) for name in "xy")
    options = {"species": species} if species else {}

    def results(*specs):
        return stead.results("s.std", *specs, chunk="4KiB", threads=2, **options)

    specs = [spec for spec, _ in EVERY.values()]
    for spec, got, (_, want) in zip(specs, results(*specs), EVERY.values(), strict=True):
        assert got == want(x, y, records, data), spec
    [hist] = results("hist:x,bins=7")
    counts, edges = np.histogram(x, 7)
    assert (hist["counts"], hist["edges"]) == (counts.tolist(), edges.tolist())
    [gram] = results("gram:x,y,exact")
    assert np.allclose(gram["matrix"], [[x @ x, x @ y], [x @ y, y @ y]], rtol=1e-12)
    [clusters] = results("kmeans:x,y,k=4")
    points, centres = np.column_stack([x, y]), np.array(clusters["centroids"])
    nearest = ((points[:, None] - centres) ** 2).sum(2).argmin(1)
    assert clusters["sizes"] == np.bincount(nearest, minlength=4).tolist() and clusters["dropped"] == 0
    [normal] = results("normalize:x,y,zscore,out=n.npy")
    assert normal["rows"] == len(x)
    assert np.allclose(np.load(tmp_path / "n.npy"), (points - points.mean(0)) / points.std(0), rtol=1e-10, atol=1e-12)
    flags = ["--species", species] if species else []
    stead.fails("run", "s.std", "-k", "render:out=p.png", *flags, code=2, says=("render", "3-d array"))
    assert not (tmp_path / "p.png").exists()
    # A kernel that is new is to be tried here.
    names = {k["name"] for k in json.loads(stead("kernels", "--format", "json").stdout)}
    assert names == {*EVERY, "hist", "gram", "kmeans", "normalize", "render"}


def test_kernels_of_numbers_refuse_the_names_of_species(stead, tmp_path):
    write(tmp_path / "s.std", galaxy(*COUNTS))
    # `species` is text: kernels of numbers say so.
    for spec in ("sum:species", "hist:species", "quantile:species", "gram:species,x", "kmeans:species,x"):
        stead.fails("run", "s.std", "-k", spec, code=1, says=("'species' holds text",))


def test_groups_and_bytes(stead, tmp_path):
    kept = write(tmp_path / "s.std", galaxy(*COUNTS))
    data = (tmp_path / "s.std").read_bytes()
    by = stead.results("s.std", "rows", "mean:mass", by="species")
    assert by[0] == dict(zip(SPECIES, COUNTS, strict=True)) or sorted(by[0].values()) == sorted(COUNTS)
    for k in SPECIES:
        assert by[1][k] == math.fsum(kept[k]["mass"].astype("f8")) / len(kept[k])
    # Byte kernels see the file, header and all; with a species its records alone.
    digits = stead.result("s.std", "digits")
    assert digits == {str(d): data.count(b"%d" % d) for d in range(10)}
    digits = stead.result("s.std", "digits", species="dark")
    assert digits == {str(d): kept["dark"].tobytes().count(b"%d" % d) for d in range(10)}


def test_snapshots_of_one_run_are_one_dataset(stead, tmp_path):
    """No stars yet in the first one, and another byte order in the last."""
    kept = [
        write(tmp_path / "run.00001", galaxy(500, 500, 0, 1)),
        write(tmp_path / "run.00002", galaxy(450, 500, 50, 2)),
        write(tmp_path / "run.00003", galaxy(400, 500, 100, 3), "<", 28, "f8", "f8"),
    ]
    want = math.fsum(np.concatenate([k["star"]["mass"].astype("f8") for k in kept]))
    assert stead.results("run.*", "rows", "count:star.mass", "sum:star.mass") == [3000, 150, want]


@pytest.mark.parametrize("standard", [True, False])
def test_files_of_pytipsy(stead, tmp_path, standard):
    tables = galaxy(30, 50, 20)
    names = {"rho": "dens", "temp": "tempg", "hsmooth": "h", "metals": "zmetal"}
    given = [
        {(names.get(f, f) if k == "gas" else f): tables[k][f] for f in SPECIES[k]} for k in SPECIES
    ]
    head = {"time": 0.75, "n": 100, "ndim": 3, "ngas": 30, "ndark": 50, "nstar": 20}
    path = str(tmp_path / "p.bin")
    pytipsy.wtipsy(path, head, *given, STANDARD=standard)
    for k, table in tables.items():
        for f in SPECIES[k]:
            assert stead.result("p.bin", f"sum:{k}.{f}") == math.fsum(table[f].astype("f4").astype("f8")), (k, f)
    # What it reads from a file that we take for one.
    kept = write(tmp_path / "q.std", tables, ">" if standard else "<", 32)
    found, *read = pytipsy.rtipsy(str(tmp_path / "q.std"))[0], *pytipsy.rtipsy(str(tmp_path / "q.std"))[1:]
    assert found["n"] == 100
    for k, table in zip(SPECIES, read, strict=True):
        for f in SPECIES[k]:
            seen = table[names.get(f, f) if k == "gas" else f]
            assert np.array_equal(seen, kept[k][f].astype("f8")), (k, f)
            assert stead.result("q.std", f"max:{k}.{f}") == seen.max()


@pytest.mark.parametrize("order", "><")
@pytest.mark.parametrize("pos, vel", [("f4", "f4"), ("f8", "f4"), ("f8", "f8")])
def test_what_pynbody_reads(stead, tmp_path, order, pos, vel):
    write(tmp_path / "galaxy.std", galaxy(*COUNTS), order, 32, pos, vel)
    # It takes any value for yes.
    doubles = "bDoublePos = 1\n" * (pos == "f8") + "bDoubleVel = 1\n" * (vel == "f8")
    (tmp_path / "galaxy.param").write_text("dKpcUnit = 1\ndMsolUnit = 1e10\n" + doubles)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        snapshot = pynbody.load(str(tmp_path / "galaxy.std"))
    families = {"gas": snapshot.gas, "dark": snapshot.dark, "star": snapshot.star}
    assert stead.result("galaxy.std", "rows") == len(snapshot)
    # It keeps the smoothing length of gas as `eps`, and names a few more by what they are derived to.
    for k, names in SPECIES.items():
        for f in names:
            seen = np.asarray(families[k]["eps" if f == "hsmooth" else f]).astype("f8")
            got = stead.results("galaxy.std", f"sum:{k}.{f}", f"min:{k}.{f}", f"max:{k}.{f}")
            assert got == [math.fsum(seen), seen.min(), seen.max()], (k, f)


@pytest.mark.parametrize("order", "><")
def test_counts_beyond_32_bits(stead, tmp_path, order):
    """A file of 200 GB that takes no room: what is not written reads as zeros."""
    # Numbers for which pynbody, which takes the upper bits only where the lower ones do not add up, does so.
    counts = [0x60000003, 0x60000005, 0x60000004]
    head = header(counts, order)
    with open(tmp_path / "big.std", "wb") as f:
        f.write(head)
        f.truncate(32 + 48 * counts[0] + 36 * counts[1] + 44 * counts[2])
    assert stead.result("big.std", "rows") == sum(counts)
    assert stead.result("big.std", "rows", species="star") == counts[2]
    details = json.loads(stead("describe", "big.std", "--format", "json").stdout)["details"]
    assert [details[k] for k in SPECIES] == counts
    # Older versions of pynbody, those for Python 3.10, read headers where they load all else.
    if sys.version_info >= (3, 11):
        assert list(pynbody.snapshot.tipsy.TipsySnap._parse_header(head)[1:5]) == [sum(counts), *counts]


def test_damaged_files_say_so(stead, tmp_path):
    write(tmp_path / "good.std", galaxy(30, 20, 10))
    data = (tmp_path / "good.std").read_bytes()
    (tmp_path / "cut.std").write_bytes(data[:-44])
    stead.fails("run", "cut.std", "-k", "rows", code=1, says=("cut.std", "truncated", "10 star"))
    (tmp_path / "short.std").write_bytes(data[:20])
    stead.fails("run", "short.std", "-k", "rows", code=1, says=("short.std", "header"))
    (tmp_path / "cut.00001").write_bytes(data[:-44])
    stead.fails("run", "cut.00001", "-k", "rows", "--type", "tipsy", code=1, says=("truncated",))
    stead.fails("run", "good.std", "-k", "mean:rho", "--species", "dark", code=2, says=("no column 'rho'",))
    stead.fails("run", "good.std", "-k", "rows", "--species", "gold", code=2, says=("unknown species",))
    stead.fails("run", "good.std", "-k", "mean:dark.mas", code=2, says=("dark.mass",))
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    stead.fails("run", "t.csv", "-k", "rows", "--species", "gas", code=1, says=("t.csv",))
    stead.fails("run", "t.csv", "-k", "rows", "--type", "csv", "--species", "gas", code=2, says=("species",))
