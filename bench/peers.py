"""What other tools take for the work of the benchmarks: one job of one tool a call, so that each starts
fresh. Prints one line of JSON with wall and processor seconds inside the process, imports not counted.

    python bench/peers.py polars columns log.csv
"""

import json
import resource
import sys
import time

NUMBERS = ["bytes", "latency_ms", "cpu", "mem", "temp", "load", "errors", "score"]


def polars_columns(path):
    import polars as pl

    c = [f(n).name.suffix(s) for n in NUMBERS for f, s in ((lambda n: pl.col(n).sum(), "_sum"),
         (lambda n: pl.col(n).mean(), "_mean"), (lambda n: pl.col(n).std(), "_std"))]
    return lambda: pl.scan_csv(path).select(c).collect(engine="streaming").row(0)


def polars_lines(path):
    import polars as pl

    return lambda: pl.scan_csv(path).select(pl.len()).collect(engine="streaming").item()


def duckdb_columns(path):
    import duckdb

    c = ", ".join(f"sum({n}), avg({n}), stddev({n})" for n in NUMBERS)
    return lambda: duckdb.sql(f"select {c} from read_csv('{path}')").fetchall()


def pandas_columns(path):
    import pandas as pd

    return lambda: pd.read_csv(path, usecols=NUMBERS, engine="pyarrow").agg(["sum", "mean", "std"]).to_dict()


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


def polars_nine(path):
    """Count lines; sum and mean of a column; Gramian; normalised column, its mean and deviation; digits;
    entropy of the bytes (with numba: Polars has no byte histogram)."""
    import numpy as np
    import polars as pl

    hist = histogram(path)

    def work():
        d = pl.read_csv(path, columns=NUMBERS)
        x = d["latency_ms"]
        lo, hi = x.min(), x.max()
        y = (x - lo) / (hi - lo)
        m = d.to_numpy()
        h = hist()
        p = h[h > 0] / h.sum()
        return (d.height, x.sum(), x.mean(), x.std(), y.mean(), y.std(), (m.T @ m).tolist(),
                h[48:58].tolist(), float(-(p * np.log2(p)).sum()))

    return work


JOBS = {
    ("polars", "columns"): polars_columns,
    ("polars", "lines"): polars_lines,
    ("polars", "nine"): polars_nine,
    ("duckdb", "columns"): duckdb_columns,
    ("pandas", "columns"): pandas_columns,
    ("numba", "histogram"): histogram,
}


def main():
    tool, job, path = sys.argv[1:4]
    work = JOBS[tool, job](path)
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    work()
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"tool": tool, "job": job, "seconds": wall, "cpu_seconds": cpu,
                      "peak_bytes": after.ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
