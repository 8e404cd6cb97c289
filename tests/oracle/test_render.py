"""render: against a ray caster in NumPy, written from the kernel's documented definition alone."""

import math

import numpy as np
import pytest
from support import read_png

AMBIENT = 0.5
MAPS = {
    "gray": [[0, 0, 0], [1, 1, 1]],
    "hot": [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]],
}


def interpolated(volume, p):
    """Trilinear at the points `p`, constant beyond the outermost voxels."""
    n = np.array(volume.shape)
    q = np.clip(p, 0, n - 1)
    i = q.astype(int)
    j, f = np.minimum(i + 1, n - 1), q - i
    v = 0.0
    for corner in range(8):
        pick = [(j if corner >> a & 1 else i)[..., a] for a in range(3)]
        weight = np.prod([f[..., a] if corner >> a & 1 else 1 - f[..., a] for a in range(3)], axis=0)
        v = v + weight * volume[tuple(pick)]
    return v


def lit(volume, p, light):
    """The part of the light that a surface across the gradient gives back."""
    half = 0.5 * np.eye(3)
    g = np.stack([interpolated(volume, p + half[a]) - interpolated(volume, p - half[a]) for a in range(3)], axis=-1)
    g = np.where(np.isfinite(g), g, 0)
    length = np.sqrt((g**2).sum(axis=-1))
    cosine = np.abs(g @ light) / np.where(length > 0, length, 1)
    return np.where(length > 0, AMBIENT + (1 - AMBIENT) * cosine, 1)


def cast(
    volume, width, height, azimuth, elevation, colors, opacity, background, perspective=False, step=1.0, shading="gradient"
):
    """One long sum over each ray, in double precision."""
    n = np.array(volume.shape, float)
    radius = 0.5 * np.sqrt((n**2).sum())
    sa, ca = math.sin(math.radians(azimuth)), math.cos(math.radians(azimuth))
    se, ce = math.sin(math.radians(elevation)), math.cos(math.radians(elevation))
    forward, right, up = np.array([-se, -ce * sa, -ce * ca]), np.array([0, ca, -sa]), np.array([ce, -se * sa, -se * ca])
    distance = 4 * radius if perspective else radius
    half = radius * 4 / math.sqrt(15) if perspective else radius
    pixel = 2 * half / min(width, height)
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    side = ((x + 0.5 - width / 2) * pixel)[..., None] * right + ((height / 2 - y - 0.5) * pixel)[..., None] * up
    eye = (n - 1) / 2 - forward * distance
    if perspective:
        direction = forward * distance + side
        direction /= np.linalg.norm(direction, axis=2, keepdims=True)
        origin = np.broadcast_to(eye, direction.shape)
    else:
        origin, direction = eye + side, np.broadcast_to(forward, side.shape)
    light = (2 * up - right - 2 * forward) / 3
    low, high = volume[np.isfinite(volume)].min(), volume[np.isfinite(volume)].max()
    picture, through = np.zeros((height, width, 3)), np.ones((height, width))
    table = np.array(MAPS[colors], float)
    for k in range(int((distance + 2 * radius) / step) + 2):
        p = origin + direction * ((k + 0.5) * step)
        inside = ((p >= -0.5) & (p < n - 0.5)).all(axis=2)
        v = interpolated(volume, p)
        inside &= np.isfinite(v)
        u = np.clip((np.where(inside, v, low) - low) / (high - low), 0, 1)
        a = 1 - (1 - np.interp(u, [o[0] for o in opacity], [o[1] for o in opacity])) ** step
        a = np.where(inside, a, 0)
        color = np.stack([np.interp(u, np.linspace(0, 1, len(table)), table[:, c]) for c in range(3)], axis=2)
        if shading == "gradient":
            color = color * lit(volume, p, light)[..., None]
        picture += (through * a)[..., None] * color
        through *= 1 - a
    return (picture + through[..., None] * np.array(background)) * 255


@pytest.fixture
def volume(tmp_path):
    """Two shells, not centred, in an array of three different lengths."""
    z, y, x = np.mgrid[-1:1:34j, -1.2:1:40j, -1:1.1:46j]
    a = np.exp(-((np.sqrt(x * x + y * y + z * z) - 0.6) ** 2) / 0.02) + 0.8 * np.exp(-((x - 0.4) ** 2 + y * y + z * z) / 0.05)
    np.save(tmp_path / "v.npy", a.astype("<f4"))
    return a.astype("<f4").astype(float)


VIEWS = [
    {"azimuth": 30, "elevation": 20},
    {"azimuth": 200, "elevation": -35, "shading": "none"},
    {"azimuth": 0, "elevation": 0},
    {"azimuth": 77, "elevation": 90},
    {"azimuth": 30, "elevation": 20, "perspective": True, "shading": "none"},
    {"azimuth": 140, "elevation": -20, "perspective": True},
    {"azimuth": -120, "elevation": 10, "step": 0.5},
]
OPACITY = [(0, 0), (0.2, 0), (0.3, 0.02), (1, 0.3)]


def spec(colors="gray", azimuth=30, elevation=20, perspective=False, step=1, shading="gradient") -> str:
    text = ";".join(f"{u}:{a}" for u, a in OPACITY)
    return (
        f"render:out=v.png,width=60,height=50,azimuth={azimuth},elevation={elevation},colors={colors},"
        f"opacity='{text}',background=#204060,step={step},shading={shading}"
        + (",projection=perspective" if perspective else "")
    )


def check(path, volume, colors="gray", **view):
    """Compares a picture with that of the other ray caster."""
    view = {"azimuth": 30, "elevation": 20, **view}
    got = read_png(path)
    with np.errstate(invalid="ignore"):
        want = cast(volume, 60, 50, colors=colors, opacity=OPACITY, background=[0x20 / 255, 0x40 / 255, 0x60 / 255], **view)
    assert got.shape == want.shape
    assert len(np.unique(got.reshape(-1, 3), axis=0)) > 100, "the picture shows something"
    difference = np.abs(got - want)
    # A sample that lies on the box's face within rounding may fall to either side: a few pixels of the rim.
    assert np.quantile(difference, 0.999) <= 1.01 and difference.mean() < 0.5, (difference.max(), difference.mean())


@pytest.mark.parametrize("view", VIEWS, ids=str)
@pytest.mark.parametrize("colors", MAPS)
def test_pictures_are_those_of_another_ray_caster(stead, tmp_path, volume, view, colors):
    stead.result("v.npy", spec(colors, **view), chunk="16KiB", threads=2)
    check(tmp_path / "v.png", volume, colors, **view)


@pytest.mark.parametrize("view", VIEWS[:2], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_both_orders_and_raw_files(stead, tmp_path, volume, order, view):
    np.save(tmp_path / "o.npy", np.array(volume, ">f8", order=order))
    stead.result("o.npy", spec(**view), chunk="16KiB", threads=3)
    check(tmp_path / "v.png", volume, **view)
    first = (tmp_path / "v.png").read_bytes()
    (tmp_path / "v.raw").write_bytes(b"head" + volume.astype("<f4").tobytes(order=order))
    shape = "x".join(map(str, volume.shape))
    stead.result("v.raw", spec(**view), type="raw", dtype="f32", shape=shape, order=order, skip=4, threads=1)
    assert (tmp_path / "v.png").read_bytes() == first


@pytest.mark.parametrize("shading", ["none", "gradient"])
def test_holes_are_transparent(stead, tmp_path, volume, shading):
    volume[10:20, 12:25, 20:40] = np.nan
    volume[np.random.default_rng(1).random(volume.shape) < 0.002] = np.inf
    np.save(tmp_path / "v.npy", volume.astype("<f4"))
    stead.result("v.npy", spec(shading=shading), threads=2)
    check(tmp_path / "v.png", volume, shading=shading)


def test_a_volume_of_one_value_and_one_of_none(stead, tmp_path):
    np.save(tmp_path / "v.npy", np.full((8, 8, 8), 3.0))
    got = stead.result("v.npy", "render:out=a.png,width=16,height=16")
    assert (got["min"], got["max"]) == (3.0, 3.0)
    assert read_png(tmp_path / "a.png").max() > 0
    for i, a in enumerate([np.full((8, 8, 8), np.nan), np.zeros((8, 0, 8))]):
        np.save(tmp_path / "n.npy", a)
        got = stead.result("n.npy", f"render:out=n{i}.png,width=16,height=16,background=white")
        assert (got["min"], got["max"]) == (None, None)
        assert read_png(tmp_path / f"n{i}.png").min() == 255


def test_integers_are_drawn_as_their_values(stead, tmp_path, volume):
    a = np.round(volume / volume.max() * 1000)
    np.save(tmp_path / "v.npy", a.astype("<i2"))
    stead.result("v.npy", spec())
    check(tmp_path / "v.png", a)


WRONG = {
    "render:width=0": "at least 1",
    "render:width=10000,height=10000": "2^24",
    "render:shading=phong": "gradient or none",
    "render:opacity='1:0;0:1'": "opacity",
    "render:colors=jet": "viridis",
    "render:background=pink": "#rrggbb",
    "render:step=0": "step must be between",
    "render:elevation=100": "elevation must be between",
    "render:min=2,max=1": "min is above max",
    "render:projection=fish": "perspective",
    "render:size=3": "unknown option 'size'",
    "render:v": "options only",
}


@pytest.mark.parametrize("text", WRONG)
def test_bad_options_are_told(stead, tmp_path, text):
    np.save(tmp_path / "v.npy", np.zeros((8, 8, 8)))
    stead.fails("run", "v.npy", "-k", text, code=2, says=(WRONG[text],))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.npy"]


def test_what_cannot_be_rendered(stead, tmp_path):
    np.save(tmp_path / "v.npy", np.zeros((8, 8)))
    stead.fails("run", "v.npy", "-k", "render:out=v.png", code=2, says=("3-d array", "2 dimensions"))
    (tmp_path / "v.csv").write_text("a,b\n1,2\n")
    stead.fails("run", "v.csv", "-k", "render:out=v.png", code=2, says=("3-d array",))
    np.save(tmp_path / "w.npy", np.zeros((8, 8, 8)))
    stead.fails("run", "w.npy", "-k", "render:out=nowhere/v.png", code=None, says=("nowhere",))
    stead.fails("run", "w.npy", "-k", "render:out=v.png", "--where", "value > 0", code=2, says=("cannot be filtered",))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.csv", "v.npy", "w.npy"]
