"""What other tools take for the work of the benchmarks.

    python bench/peers.py polars columns log.csv

Loads, imports and compiles what the job needs, prints `ready`, and then for each line of standard input does the
work once and prints one line of JSON: wall and processor seconds inside the process, peak memory, and the
figure that stead must find too.
"""

import json
import resource
import sys
import time

from jobs import NUMBERS, PHASE_SPACE, ROUNDS


def polars_columns(path):
    import polars as pl

    c = [f(n).name.suffix(s) for n in NUMBERS for f, s in ((lambda n: pl.col(n).sum(), "_sum"),
         (lambda n: pl.col(n).mean(), "_mean"), (lambda n: pl.col(n).std(), "_std"))]
    return lambda: pl.scan_csv(path).select(c).collect(engine="streaming")["latency_ms_mean"].item()


def polars_lines(path):
    import polars as pl

    # Polars does not count the header.
    return lambda: pl.scan_csv(path).select(pl.len()).collect(engine="streaming").item() + 1


def numpy_lines(path):
    import numpy as np

    return lambda: int(np.count_nonzero(np.memmap(path, np.uint8, "r") == 10))


def duckdb_columns(path):
    import duckdb

    c = ", ".join(f"sum({n}), avg({n}), stddev({n})" for n in NUMBERS)
    at = 3 * NUMBERS.index("latency_ms") + 1
    return lambda: duckdb.sql(f"select {c} from read_csv('{path}')").fetchall()[0][at]


def pandas_columns(path):
    import pandas as pd

    def work():
        d = pd.read_csv(path, usecols=NUMBERS, engine="pyarrow").agg(["sum", "mean", "std"])
        return float(d.loc["mean", "latency_ms"])

    return work


def histogram(path):
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def count(b):
        n = numba.get_num_threads()
        h = np.zeros((n, 256), np.int64)
        step = (len(b) + n - 1) // n
        for t in numba.prange(n):
            for i in range(t * step, min(len(b), (t + 1) * step)):
                h[t, b[i]] += 1
        return h.sum(0)

    count(np.zeros(10, np.uint8))
    return lambda: count(np.memmap(path, np.uint8, "r"))


def numba_histogram(path):
    import numpy as np

    work = histogram(path)

    def entropy():
        h = work()
        p = h[h > 0] / h.sum()
        -(p * np.log2(p)).sum()
        return int(h[ord("7")])

    return entropy


def nine(read):
    """Count lines; sum, mean and deviation of a column; Gramian; a normalised column with its mean and deviation;
    digits; entropy of the bytes (by numba: none of these tools has a byte histogram)."""

    def make(path):
        import numpy as np

        hist = histogram(path)
        columns = read(path)

        def work():
            m = columns()
            x = m[:, NUMBERS.index("latency_ms")]
            lo, hi = x.min(), x.max()
            y = (x - lo) / (hi - lo)
            h = hist()
            p = h[h > 0] / h.sum()
            answer = (len(m), x.sum(), x.mean(), x.std(), y.mean(), y.std(), m.T @ m, h[48:58], -(p * np.log2(p)).sum())
            return float(answer[2])

        return work

    return make


@nine
def polars_nine(path):
    import polars as pl

    return lambda: pl.read_csv(path, columns=NUMBERS).to_numpy()


@nine
def duckdb_nine(path):
    import duckdb
    import numpy as np

    def read():
        d = duckdb.sql(f"select {', '.join(NUMBERS)} from read_csv('{path}')").fetchnumpy()
        return np.column_stack([d[n] for n in NUMBERS])

    return read


@nine
def pandas_nine(path):
    import pandas as pd

    return lambda: pd.read_csv(path, usecols=NUMBERS, engine="pyarrow").to_numpy()


def sklearn_kmeans(path):
    import warnings

    import numpy as np
    from sklearn.cluster import KMeans

    warnings.filterwarnings("ignore")
    x = np.load(path)
    model = KMeans(20, init=x[:20], n_init=1, max_iter=ROUNDS, tol=0, algorithm="lloyd")
    return lambda: float(model.fit(x).inertia_)


def scipy_gram(path):
    import numpy as np
    from scipy.linalg.blas import dsyrk

    # Transposed, a matrix in C order is one in Fortran order: nothing is copied.
    x = np.load(path).T
    last = 1 if x.shape[0] == 10 else 0
    return lambda: float(dsyrk(1.0, x)[0, last])


def numpy_means(path):
    import numpy as np

    x = np.load(path)
    return lambda: float(x.mean(axis=0)[0])


def tables(path):
    """The records of each species of a standard Tipsy file, mapped."""
    import numpy as np

    front = [(n, ">f4") for n in PHASE_SPACE]
    counts = np.fromfile(path, ">i4", 3, offset=16)
    offset, found = 32, {}
    for k, n, rest in zip(("gas", "dark", "star"), counts, (5, 2, 4)):
        dtype = np.dtype([*front, *((f"rest{i}", ">f4") for i in range(rest))])
        found[k] = np.memmap(path, dtype, "r", offset, (int(n),))
        offset += int(n) * dtype.itemsize
    return found


def numpy_particles(path):
    import numpy as np

    def work():
        found = tables(path)
        columns = {c: np.concatenate([t[c].astype("f8") for t in found.values()]) for c in PHASE_SPACE}
        return [(float(v.mean()), float(v.std(ddof=1))) for v in columns.values()][1][0]

    return work


def numpy_centre(path):
    import numpy as np

    def work():
        star = tables(path)["star"]
        a = np.column_stack([star[c].astype("f8") for c in ("mass", "x", "y", "z")])
        return float((a.T @ a)[0, 1])

    return work


def pynbody_particles(path):
    import warnings

    import numpy as np
    import pynbody

    warnings.simplefilter("ignore")

    def work():
        s = pynbody.load(path)
        columns = [np.asarray(s[c]).astype("f8") for c in PHASE_SPACE]
        return [(float(v.mean()), float(v.std(ddof=1))) for v in columns][1][0]

    return work


def vtk_render(path):
    import numpy as np
    import vtk
    from vtk.util.numpy_support import numpy_to_vtk

    x = np.load(path)
    image = vtk.vtkImageData()
    image.SetDimensions(*x.shape[::-1])
    image.GetPointData().SetScalars(numpy_to_vtk(x.ravel()))
    mapper = vtk.vtkFixedPointVolumeRayCastMapper()
    mapper.SetInputData(image)
    mapper.SetBlendModeToComposite()
    mapper.SetAutoAdjustSampleDistances(0)
    mapper.SetImageSampleDistance(1.0)
    mapper.SetSampleDistance(1.0)
    mapper.SetNumberOfThreads(2)
    opacity, gray = vtk.vtkPiecewiseFunction(), vtk.vtkColorTransferFunction()
    for v, o in [(0, 0), (0.05, 0), (0.3, 0.02), (1, 0.3)]:
        opacity.AddPoint(v, o)
    gray.AddRGBPoint(0, 0, 0, 0)
    gray.AddRGBPoint(1, 1, 1, 1)
    look = vtk.vtkVolumeProperty()
    look.SetScalarOpacity(opacity)
    look.SetColor(gray)
    look.SetInterpolationTypeToLinear()
    look.ShadeOff()
    volume = vtk.vtkVolume()
    volume.SetMapper(mapper)
    volume.SetProperty(look)
    scene = vtk.vtkRenderer()
    scene.AddVolume(volume)
    window = vtk.vtkRenderWindow()
    window.SetOffScreenRendering(1)
    window.SetMultiSamples(0)
    window.SetSize(1024, 1024)
    window.AddRenderer(scene)
    # As stead with azimuth 0: from high to low indices of the fastest axis, the slowest one pointing up.
    camera = scene.GetActiveCamera()
    x0, y0, z0 = image.GetCenter()
    camera.SetFocalPoint(x0, y0, z0)
    camera.SetViewUp(0, 0, 1)
    # From so far that the rays are nearly parallel; the sphere around the volume fills the image.
    radius = 0.5 * float(np.linalg.norm(x.shape))
    camera.SetPosition(x0 + 50 * radius, y0, z0)
    camera.SetViewAngle(float(np.degrees(2 * np.arctan(1 / 50))))
    scene.ResetCameraClippingRange()
    window.Render()
    turn = [0]

    def work():
        # A camera that moved, so that nothing of the last picture is used again.
        turn[0] += 1
        camera.Azimuth(1e-3 if turn[0] % 2 else -1e-3)
        window.Render()

    return work


JOBS = {
    ("polars", "columns"): polars_columns,
    ("polars", "lines"): polars_lines,
    ("polars", "nine"): polars_nine,
    ("duckdb", "columns"): duckdb_columns,
    ("duckdb", "nine"): duckdb_nine,
    ("pandas", "columns"): pandas_columns,
    ("pandas", "nine"): pandas_nine,
    ("numpy", "lines"): numpy_lines,
    ("numpy", "means"): numpy_means,
    ("numba", "histogram"): numba_histogram,
    ("sklearn", "kmeans"): sklearn_kmeans,
    ("scipy", "gram"): scipy_gram,
    ("numpy", "particles"): numpy_particles,
    ("numpy", "centre"): numpy_centre,
    ("pynbody", "particles"): pynbody_particles,
    ("vtk", "render"): vtk_render,
}


def main():
    tool, job, path = sys.argv[1:4]
    work = JOBS[tool, job](path)
    print("ready", flush=True)
    for _ in sys.stdin:
        wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        answer = work()
        wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "peak_bytes": after.ru_maxrss * 1024,
                          "answer": answer}), flush=True)


if __name__ == "__main__":
    main()
