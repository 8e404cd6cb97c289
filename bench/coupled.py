"""A simulation and an analysis: each alone, both at once that have nothing to do with each other, coupled by a stream, and through files.

    python bench/coupled.py END JSON

The simulation solves Laplace's equation by sweeps over a field, the analysis finds its raw and central moments. What the analysis finds is
compared. Called by streams.py.
"""

import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace

# Each of the two programs has a core: a dot product with a thread for each core of the machine would take the other's.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from processes import End, fresh, pair

HERE = Path(__file__).parent
# Rows that stay in a processor's cache while something is done with them.
STRIP = 16


class Simulation:
    def __init__(self, o):
        self.own, self.sweeps = (np.zeros((o.rows, o.columns)), np.zeros((o.rows, o.columns))), o.sweeps
        self.u, self.part = self.own[0], np.empty((STRIP, o.columns - 2))
        for field in self.own:
            field[0, :] = 100

    def advance(self, out=None):
        """One step: sweeps, the last of them into `out` if there is one, which is only read from then on."""
        for i in range(self.sweeps):
            to = self.own[self.u is self.own[0]]
            if out is not None and i == self.sweeps - 1:
                to = out
            self.sweep(self.u, to)
            self.u = to
        return self.u

    def sweep(self, u, to):
        to[0], to[-1] = u[0], u[-1]
        to[:, 0], to[:, -1] = u[:, 0], u[:, -1]
        for at in range(1, len(u) - 1, STRIP):
            end = min(at + STRIP, len(u) - 1)
            part = self.part[: end - at]
            np.add(u[at - 1:end - 1, 1:-1], u[at + 1:end + 1, 1:-1], out=part)
            part += u[at:end, :-2]
            part += u[at:end, 2:]
            np.multiply(part, 0.25, out=to[at:end, 1:-1])


def moments(field, times):
    """Mean, and central moments of order 2 to 4, of strips that are put together; so many times, for a heavier analysis."""
    for _ in range(times):
        n, mean, m2, m3, m4 = 0, 0.0, 0.0, 0.0, 0.0
        for at in range(0, len(field), STRIP):
            part = field[at:at + STRIP]
            k, m = part.size, float(part.mean())
            d = part - m
            d2 = d * d
            b2, b3, b4 = float(d2.sum()), float(np.vdot(d2, d)), float(np.vdot(d2, d2))
            d1, both = m - mean, n + k
            m4 += b4 + d1**4 * n * k * (n * n - n * k + k * k) / both**3 + 6 * d1**2 * (n * n * b2 + k * k * m2) / both**2 \
                + 4 * d1 * (n * b3 - k * m3) / both
            m3 += b3 + d1**3 * n * k * (n - k) / both**2 + 3 * d1 * (n * b2 - k * m2) / both
            m2 += b2 + d1 * d1 * n * k / both
            mean += d1 * k / both
            n = both
    return [mean, m2 / n, m3 / n, m4 / n]


def simulate(o):
    one = Simulation(o)
    begun = yield
    if o.how in ("stream, put", "stream, empty"):
        import stead

        with stead.writer("sim", dataspaces={"memory": o.folder}, readers=1) as w:
            for _ in range(o.steps):
                if o.how == "stream, empty":
                    u = w.empty("u", one.u.shape)
                    one.advance(u)
                else:
                    u = one.advance()
                with w.step():
                    w.put("u", u)
    else:
        for n in range(o.steps):
            u = one.advance()
            if o.how in ("files as they come", "files one after the other"):
                np.save(f"{o.files}/{n}.part.npy", u)
                os.rename(f"{o.files}/{n}.part.npy", f"{o.files}/{n}.npy")
    yield {"seconds": time.monotonic() - begun}


def analyse(o):
    field = Simulation(o).u
    begun = yield
    found = []
    if o.how.startswith("stream"):
        import stead

        for step in stead.reader("sim", dataspaces={"memory": o.folder}):
            found.append(moments(step["u"], o.times))
    else:
        for n in range(o.steps):
            if o.how.startswith("files"):
                # Nobody tells when there is a file; looking for it takes no time to speak of.
                while not os.path.exists(f"{o.files}/{n}.npy"):
                    time.sleep(0.001)
                field = np.load(f"{o.files}/{n}.npy")
            found.append(moments(field, o.times))
    yield {"seconds": time.monotonic() - begun, "moments": found}


def main():
    o = SimpleNamespace(**json.loads(sys.argv[2]))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if o.how.startswith("stream"):
        import stead  # noqa: F401  the start of Python is not what is measured
    work = {"simulation": simulate, "analysis": analyse}[sys.argv[1]](o)
    next(work)
    out.write("ready\n")
    out.flush()
    sys.stdin.readline()
    out.write(json.dumps(work.send(time.monotonic())) + "\n")
    out.flush()


ALONE = ("simulation alone", "analysis alone")
HOWS = ("both at once, not coupled", "stream, put", "stream, empty", "files as they come", "files one after the other")


def coupled_section(a):
    few = a.scale < 0.1
    rows = 256 if few else 2048
    o = {"rows": rows, "columns": rows, "sweeps": 2 if few else 12, "times": 1 if few else 4, "steps": 2 if few else 24}
    found = {}

    def run(how, *which):
        fresh(a)
        files = a.data / "coupled"
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir()
        told = json.dumps({**o, "how": how, "folder": str(a.folder), "files": str(files)})
        these = [End([sys.executable, HERE / "coupled.py", end, told]) for end in which]
        begun, ended, said = pair(these, how == "files one after the other")
        shutil.rmtree(files)
        found.setdefault(how, []).append(ended - begun)
        return said[-1].get("moments")

    for _ in range(a.runs):
        run("simulation alone", "simulation")
        run("analysis alone", "analysis")
        answers = [run(how, "simulation", "analysis") for how in (HOWS[:-1] if few else HOWS)][1:]
        assert all(answer == answers[0] for answer in answers), "the analysis has found something else"
    longer = max(statistics.median(found[how]) for how in ALONE)
    return {**o, "bytes": rows * rows * 8, "seconds": found, "longer": longer}


if __name__ == "__main__":
    main()
