"""The same as small.toml, run beside the simulation in its own program: only what comes out leaves it."""

import numpy as np
import stead

flow = stead.flow(name="small")
sim = flow.read("sim")
mean = sim["T"].mean(over="y")
flow.write("small", mean=mean, hot=sim["T"][::4, ::4].cast("f4"))
flow.write("ranges", highest=mean.window(10, how="max", every=10))

with flow.start() as running, stead.writer("sim", readers=1) as w:
    T = np.zeros((64, 32))
    for n in range(20):
        T[1:-1, 1:-1] += n
        with w.step():
            w.put("T", T, dims=("y", "x"), units="K")
print(running.join()["steps"], "steps")
