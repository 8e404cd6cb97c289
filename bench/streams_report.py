"""Tables of what bench/streams.py has measured.

    python bench/streams_report.py RUN.json
"""

import json
import statistics
import sys


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def gigabytes(way, size):
    """GB/s of each run."""
    return [r["steps"] * size / r["seconds"] / 1e9 for r in way["runs"]]


def cpu(way, size):
    return [r["core_seconds"] / (r["steps"] * size / 1e9) for r in way["runs"]]


HAND = "shared memory by hand: "


def handover(found, median):
    size, ways = found["bytes"], found["ways"]
    rate = {name: median(gigabytes(way, size)) for name, way in ways.items()}
    rows = []
    for name, way in ways.items():
        each = gigabytes(way, size)
        moves = "no byte" not in name
        us = median([r["seconds"] / r["steps"] * 1e6 for r in way["runs"]])
        rows.append([name, f"{rate[name]:.2f}" if moves else f"{us:.0f} us a step", f"{min(each):.2f} to {max(each):.2f}" if moves else "",
                     f"{median(cpu(way, size)):.2f}" if moves else "", "" if way["memory"] is None else f"{way['memory']:.2f}"])
    wanted = []

    def against(ours, theirs, target):
        for peer in [w for w in ways if w.startswith(theirs) and ours in ways]:
            pairs = [x / y for x, y in zip(gigabytes(ways[ours], size), gigabytes(ways[peer], size))]
            value = median(pairs)
            wanted.append([f"{ours} against {peer}", f"{target:g} x", f"{value:.2f} x ({min(pairs):.2f} to {max(pairs):.2f})",
                           "reached" if value >= target else "**not reached**"])

    against("stead: put, look", HAND + "copy in, look", 0.8)
    against("stead: put, copy out", HAND + "copy in, copy out", 0.8)
    against("stead: empty, copy out", HAND + "in place, copy out", 0.8)
    against("stead: empty, look (no byte moves)", HAND + "copy in, look", 3)
    for ours in ("stead: put, look", "stead: put, copy out"):
        against(ours, "ADIOS2 SST", 8)
        against(ours, "ADIOS2 BP5", 8)
        against(ours, "Redis", 20)
    against("stead: put, look", "Ray: look", 5)
    against("stead: put, copy out", "Ray: copy out", 5)
    against("stead: empty, look (no byte moves)", "Ray: look", 5)
    against("stead: empty, add up", HAND + "in place, add up", 0.8)
    for name, copies in (("stead: put, look", 1), ("stead: put, copy out", 2), ("stead: empty, copy out", 1)):
        if name not in ways:
            continue
        value = median(cpu(ways[name], size)) / copies
        wanted.append([f"{name}: core-seconds per GB and copy", "0.3", f"{value:.2f}", "reached" if value <= 0.3 else "**not reached**"])
    # One step that is looked at, and the arrays that the ends have of their own.
    for name, needed in (("stead: empty, look (no byte moves)", 1), ("stead: put, look", 2), ("stead: put, copy out", 3)):
        value = ways[name]["memory"] if name in ways else None
        if value is None:
            continue
        wanted.append([f"{name}: peak memory, where arrays of the ends and one step are {needed} steps", f"{1.1 * needed:.1f} steps", f"{value:.2f}",
                       "reached" if value <= 1.1 * needed else "**not reached**"])
    # Runs of before this was looked at have none.
    for keep, value in found.get("kept", []):
        wanted.append([f"stead: put, copy out: the same where {keep} steps stay that the reader has had, {keep + 3} in all", f"{1.1 * (keep + 3):.1f} steps",
                       f"{value:.2f}", "reached" if value <= 1.1 * (keep + 3) else "**not reached**"])
    return [f"## Hand-over of steps of {size / 1e6:.0f} MB\n",
            "*Look*: the reader checks some elements where they lie; *copy out*: it copies all into memory of its own before; *add up*: it adds up all. "
            "*In place*: the writer has its array in shared memory. Memory is the peak of all processes, each page once, without what they have in any "
            "case, in steps, in a run in which one step may be there that the reader has not had.\n",
            table(["", "GB/s", "range", "core-s per GB", "peak memory, steps"], rows), table(["", "wanted", "found", ""], wanted)] + [
            f"Failed in this run: {', '.join(found['failed'])}.\n"][: len(found["failed"])]


def layouts(found, median):
    seconds = {name: median([r["seconds"] / r["steps"] for r in runs]) for name, runs in found["cases"].items()}
    rows = []
    for name, value in seconds.items():
        beside = found["beside"].get(name)
        ratios = [x["seconds"] / y["seconds"] for x, y in zip(found["cases"][name], found["cases"][beside])] if beside in seconds else []
        ratio = median(ratios) if ratios else None
        rows.append([name, f"{value * 1e3:.1f}", f"{found['bytes'] / value / 1e9:.2f}",
                     f"{median([r['core_seconds'] / r['steps'] for r in found['cases'][name]]) / found['bytes'] * 1e9:.2f}",
                     f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of {beside}" if ratio else "",
                     "" if ratio is None else "reached" if ratio <= 1.3 else "**not reached**"])
    return [f"## Writers and readers that divide a field of {found['bytes'] / 1e6:.0f} MB\n",
            "Writers put their parts, readers copy theirs into memory of their own. Wanted: at most 1.3 x the time of as many that divide it alike.\n",
            table(["writers to readers", "ms a step", "GB/s", "core-s per GB", "time against", ""], rows)]


def latency(found, median):
    rows = []
    what = {"by hand": ("1 KB, ping-pong by hand (futex)", 1e6, "us", None), "pingpong": ("1 KB, ping-pong, one way of it", 1e6, "us", 50),
            "oneway": ("1 KB, one way, a pause between steps", 1e6, "us", 50), "first": ("from the start of both to the first step", 1e3, "ms", 50)}
    for name, runs in found["rows"].items():
        key, face = name.split(", ")
        if key == "many":
            for end in ("writer", "reader"):
                each = [value * 1e3 for r in runs for value in r[end]["all"]]
                first = median([r[end]["first"] for r in runs]) * 1e3
                rows.append([f"{found['variables']} variables a step, {end}, {face}", f"{median(each):.1f} ms", f"{min(each):.1f} to {max(each):.1f}; first step {first:.0f}",
                             "", ""])
            continue
        said, by, unit, wanted = what[key]
        values = [r["median"] * by for r in runs]
        p99 = f"; 99 % within {median([r['p99'] for r in runs]) * by:.0f}" if "p99" in runs[0] else ""
        rows.append([f"{said}, {face}", f"{median(values):.1f} {unit}", f"{min(values):.1f} to {max(values):.1f}{p99}", f"{wanted} {unit}" if wanted else "",
                     "" if not wanted else "reached" if median(values) <= wanted else "**not reached**"])
    return ["## Small steps\n", table(["", "median", "range of runs", "wanted", ""], rows)]


def coupled(found, median):
    rows = []
    for name, seconds in found["seconds"].items():
        ratio = median(seconds) / found["longer"]
        wanted = name.startswith("stream")
        rows.append([name, f"{median(seconds):.2f}", f"{min(seconds):.2f} to {max(seconds):.2f}", f"{ratio:.3f}",
                     "" if not wanted else "reached" if ratio <= 1.05 else "**not reached**"])
    return [f"## A simulation and its analysis: {found['steps']} steps of {found['bytes'] / 1e6:.0f} MB\n",
            "Seconds of the whole, and how long it takes of the longer of both alone; wanted is at most 1.05. Files are on the disk.\n",
            table(["", "seconds", "range", "of the longer one", ""], rows)]


def recorded(found, median):
    total = found["steps"] * found["bytes"] / 1e9
    rows = []
    for name, runs in found["rows"].items():
        def rate(what):
            each = [total / r[what] for r in runs if what in r]
            return f"{median(each):.2f} ({min(each):.2f} to {max(each):.2f})" if each else ""

        rows.append([name, rate("put"), rate("closed"), rate("read")])
    return [f"## Recorded: {found['steps']} steps of {found['bytes'] / 1e6:.0f} MB\n",
            "GB/s until the last step is put, until all is closed (and durable), and read again from the page cache.\n",
            table(["", "put", "closed", "read again"], rows)]


def nodes(found, median):
    tcp = median(found["tcp"])
    rows, rest = [], []
    for name, rate in [("TCP", found["tcp"])] + [(f"stream, {way}", of["rate"]) for way, of in found["ways"].items()]:
        each, share = [one / 1e6 for one in rate], median(rate) / tcp
        wanted = "" if name == "TCP" else "reached" if share >= 0.9 else "**not reached**"
        rows.append([name, f"{median(each):.1f}", f"{min(each):.1f} to {max(each):.1f}", f"{median(rate) / found['link']:.3f}", f"{share:.3f}", wanted])
    for way, of in found["ways"].items():
        first = [seconds * 1e3 for seconds in of["first"]]
        rest.append([f"stream, {way}", f"{median(of['core_s']):.2f}", f"{median(first):.0f}", f"{min(first):.0f} to {max(first):.0f}", f"{of['memory']:.2f}",
                     "reached" if of["memory"] <= 2.2 else "**not reached**"])
    return [f"## Two hosts that write rows, two that read columns: steps of {found['bytes'] / 1e6:.0f} MB\n",
            f"MB/s that each reading host gets over its link of {found['link'] / 1e6:.0f} MB/s; wanted are 0.9 of what TCP brings. *MPI*: all are ranks of one "
            "job. *pool*: those that write are, and readers, begun by themselves, have what daemons bring.\n",
            table(["", "MB/s", "range", "of the link", "of TCP", ""], rows),
            "Core-seconds are those of readers, without daemons. The first step is a small one, and its time that from when all programs begin to attach "
            "to when a reader has it. Memory is the peak of all processes of all hosts, of daemons, too, each page once, without what they have in any case, in "
            "a run in which one step may be there that readers have not had; wanted are 2.2 steps, of which one is the stream's, and one the arrays of readers.\n",
            table(["", "core-s per GB", "ms to the first step", "range", "peak memory, steps", ""], rest)]


def flows(found, median):
    rows = []
    for name, runs in found["rows"].items():
        what = name.split(",")[0]
        by_numpy = found["rows"][f"{what}, NumPy in a reader"]
        each = [r["seconds"] for r in runs]
        ratio = median(n["seconds"] / r["seconds"] for r, n in zip(runs, by_numpy, strict=True))
        rows.append([name, f"{median(each) * 1e3:.1f} ({min(each) * 1e3:.1f} to {max(each) * 1e3:.1f})", f"{ratio:.2f} x",
                     f"{median(r['cpu'] for r in runs):.3f}"])
    return [f"## Flows: steps of {found['bytes'] / 1e6:.0f} MB\n",
            "Milliseconds of a step, from put to put and until the last result is had; how often the time of a flow fits into that of NumPy; core-seconds of "
            "a step, of all processes.\n",
            table(["", "ms", "NumPy takes", "core-seconds"], rows)]


def lines(found):
    rows = [[name, str(n["all"]), str(n["stream"])] for name, n in found.items()]
    return ["## Lines of each end\n", "Of examples/streams, without empty ones and comments; the study that this is to better counts 61 to 130.\n",
            table(["", "whole program", "of them for the stream"], rows)]


def page(found, median=statistics.median):
    m = found["machine"]
    text = [f"# Streams: {m['cpu']}, {m['cores']} cores\n",
            f"`{found['command']}`; Linux {m['kernel']}, Python {m['python']}; " + ", ".join(f"{k} {v}" for k, v in found["versions"].items()) + ".\n",
            f"Medians of {found['runs']} runs in turn; ratios are medians of those of each turn. The load of the machine was {found['load'][0]:.1f} before and "
            f"{found['load'][-1]:.1f} after.\n"]
    sections = {"handover": handover, "layouts": layouts, "latency": latency, "coupled": coupled, "recorded": recorded, "nodes": nodes, "flows": flows}
    for name, work in sections.items():
        if name in found:
            text += work(found[name], median)
    if "lines" in found:
        text += lines(found["lines"])
    return "\n".join(text)


if __name__ == "__main__":
    print(page(json.load(open(sys.argv[1]))))
