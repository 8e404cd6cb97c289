"""Targets and tables of what bench/reading.py has measured.

    python bench/reading_report.py RUN.json
"""

import json
import statistics
import sys

BUDGET = 256 << 20


def median(values):
    return statistics.median(values)


def medians(rows):
    return {name: {int(t): median(s) for t, s in by.items()} for name, by in rows.items()}


def seconds(found):
    """By way, and number of tasks. Earlier runs have nothing beside them."""
    return found.get("seconds", found)


def per_gigabyte(rows, size):
    """Medians of processor seconds over gigabytes."""
    return {name: {n: s / (size / 1e9) for n, s in by.items()} for name, by in medians(rows).items()}


def best_device(rows):
    """The seconds of the best way to read the device without any session."""
    return min(by[0] for by in rows.values() if 0 in by)


class Targets:
    """What is wanted, what was found, and whether that is enough: `least` or `most` of a ratio."""

    def __init__(self):
        self.rows = []

    def least(self, what, wanted, ratio, note=""):
        self.rows.append((what, f"at least {wanted:g}", ratio, ratio >= wanted, note))

    def most(self, what, wanted, ratio, note=""):
        self.rows.append((what, f"at most {wanted:g}", ratio, ratio <= wanted, note))

    def lines(self):
        out = ["| target | ratio wanted | found | | |", "|---|---|---|---|---|"]
        for what, wanted, ratio, reached, note in self.rows:
            said = "reached" if reached else "**not reached**"
            out.append(f"| {what} | {wanted} | {ratio:.2f} | {said} | {note} |")
        return out


def flat(by):
    return max(by.values()) / min(by.values())


def beside_pread(t, rows, way, where):
    ratios = {tasks: rows["pread"][tasks] / s for tasks, s in rows[way].items()}
    worst = min(ratios, key=ratios.get)
    told = ", ".join(f"{r:.2f}" for r in ratios.values())
    t.least(f"{where}, {way}: time of `pread` over it, the worst number of tasks", 1, ratios[worst],
            f"{worst} tasks; by number of tasks {told}")


def overlaps(found):
    """Medians for each number of computing threads: total over the longer part, over the limit, and what these were."""
    rows = {}
    for r in found:
        longer = max(r["input"], r["computation"])
        used = (r["computation"] * r["busy"] + r["input_processor"]) / r["cores"]
        limit = max(longer, used)
        row = (r["both"] / longer, r["both"] / limit, limit / longer, r["input"], r["input_processor"], r["computation"],
               r["both"])
        rows.setdefault((r["busy"], r["cores"]), []).append(row)
    return {key: [median(column) for column in zip(*all_rows)] for key, all_rows in rows.items()}


def targets(r):
    t = Targets()
    if r.get("warm"):
        for kind, where in (("large", "page cache warm"), ("small", "the same, in pages of 4 KiB")):
            rows = medians(r["warm"][kind])
            beside_pread(t, rows, "views", where)
            t.most(f"{where}, views: slowest number of tasks over fastest", 1.15, flat(rows["views"]))
            beside_pread(t, rows, "buffers", where)
    if r.get("cold"):
        rows = medians(r["cold"]["seconds"])
        if any(0 in by for by in rows.values()):
            device = best_device(rows)
            for name in ("views", "views, O_DIRECT"):
                worst = max(rows[name], key=rows[name].get)
                t.least(f"page cache cold, {name}: time of the device alone over it", 0.95, device / rows[name][worst],
                        f"{worst} tasks, {rows[name][worst]:.2f} s; the device {device:.2f} s")
        for name in ("views", "views, O_DIRECT"):
            t.most(f"page cache cold, {name}: slowest number of tasks over fastest", 1.15, flat(rows[name]))
        for name, peak in r["cold"]["peak_bytes"].items():
            t.most(f"peak memory of the process, 1024 tasks and more, {name}, over the budget of 256 MiB", 1.02, peak / BUDGET,
                   f"{peak / 1e6:.0f} MB, the program included")
    for row in r.get("sweep") or []:
        by = {name: median(s) for name, s in row["again"].items()}
        chosen = by.pop("chosen")
        hand = min(by, key=by.get)
        t.most(f"chosen over best by hand, {row['bytes'] / 1e6:.0f} MB, {row['tasks']} tasks", 1.10, chosen / by[hand],
               f"{chosen:.3f} s; {hand} {by[hand]:.3f} s")
    for (busy, cores), (total, over, limit, *_) in overlaps(r.get("overlap") or []).items():
        t.most(f"computation on {busy} of {cores} cores: both over the longer one", 1.05, total,
               f"{limit:.2f} is what processors allow; {over:.2f} of that")
    if r.get("reader"):
        ways = {way: median(s) for way, s in seconds(r["reader"]).items()}
        t.least(f"{r['records']:,} reads of 48 bytes: time of `std::ifstream` over `FileReader`", 3,
                ways["ifstream"] / ways["FileReader"])
    if r.get("memory"):
        for name, m in r["memory"]["many"].items():
            before, after = m["resident"]
            t.most(f"{m['sessions']:,} sessions opened and closed, {name}: memory after over before", 1.02, after / before,
                   f"{before / 1e6:.2f} MB, {after / 1e6:.2f} MB; {m['seconds']:.1f} s")
            for what in ("threads", "files"):
                if what in m:
                    t.most(f"the same: {what} left over {what} before", 1, m[what][1] / m[what][0])
        for peak in r["memory"]["peaks"]:
            t.most(f"peak memory, 4096 tasks, a file of {peak['bytes'] / 1e9:.2f} GB, {peak['way']}, over the budget of 256 MiB",
                   1.02, peak["peak_bytes"] / BUDGET, f"{peak['peak_bytes'] / 1e6:.0f} MB, the program included")
    if r.get("ranks"):
        rows = medians(seconds(r["ranks"]))
        worst = min(rows["MPI_File_read_at_all"][n] / s for n, s in rows["sessions, views"].items())
        t.least("two ranks, views: time of `MPI_File_read_at_all` over it", 1, worst)
    return t


def table(rows, tasks, spread=True):
    """Rows of numbers by number of tasks; with `spread` the largest over the smallest."""
    columns = [*map(str, tasks), *(["slowest over fastest"] if spread else [])]
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, by in rows.items():
        if 0 in by:
            lines.append(f"| {name} | {by[0]:.3f} |" + " |" * (len(columns) - 1))
            continue
        cells = [f"{by[t]:.3f}" if t in by else "" for t in tasks] + ([f"{flat(by):.2f}"] if spread else [])
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def used(rows, columns, size):
    """A table of processor seconds for each gigabyte; nothing for runs in which they were not measured."""
    if not rows:
        return []
    return ["Core-seconds for each GB:", "", *table(per_gigabyte(rows, size), columns, False), ""]


def page(r):
    tasks, host = r["tasks"], r["machine"]
    out = [f"# Reading in parallel: {host['cpu']}, {host['cores']} cores", "",
           f"`{r['command']}`; Linux {host['kernel']}, Python {host['python']};",
           ", ".join(f"{k} {v}" for k, v in r["versions"].items()) + ".", "",
           f"{r['bytes'] / 1e9:.2f} GB. Seconds are medians of {r['runs']} runs, of fewer for the cold page cache and the sweep.",
           "Core-seconds are those of whole processes, without what threads of the kernel do for them.", "",
           "## Targets", "", *targets(r).lines(), ""]
    missing = [name for name in ("reader", "ranks", "same", "chares") if name in r and r[name] is None]
    if missing:
        out += [f"Left out, as what they need is not installed: {', '.join(missing)}.", ""]
    for name, why in r.get("failed", {}).items():
        out += [f"**{name} failed**: {why.splitlines()[0] if why else ''}", ""]
    if r.get("warm"):
        processor = r["warm"].get("processor", {})
        out += ["## Page cache warm", "", "By number of tasks, on all cores.", "", *table(medians(r["warm"]["large"]), tasks), "",
                *used(processor.get("large"), tasks, r["bytes"]),
                "The file lies in the page cache in pages of 4 KiB:", "", *table(medians(r["warm"]["small"]), tasks), "",
                *used(processor.get("small"), tasks, r["bytes"])]
    if r.get("cold"):
        out += ["## Page cache cold", "", *table(medians(r["cold"]["seconds"]), tasks), "",
                *used(r["cold"].get("processor"), tasks, r["bytes"])]
    if r.get("sweep"):
        names = list(r["sweep"][0]["seconds"])
        out += ["## Readers x block by hand, page cache cold", "",
                "For the targets the best by hand was run again beside the choice, in turn.", "", "| MB | tasks | " + " | ".join(names) + " |",
                "|---" * (len(names) + 2) + "|"]
        for row in r["sweep"]:
            cells = " | ".join(f"{median(s):.3f}" for s in row["seconds"].values())
            out.append(f"| {row['bytes'] / 1e6:.0f} | {row['tasks']} | {cells} |")
        out.append("")
        if "processor" in r["sweep"][0]:
            out += ["Core-seconds for each GB:", "", "| MB | tasks | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
            for row in r["sweep"]:
                cells = " | ".join(f"{median(s) / (row['bytes'] / 1e9):.3f}" for s in row["processor"].values())
                out.append(f"| {row['bytes'] / 1e6:.0f} | {row['tasks']} | {cells} |")
            out.append("")
    if r.get("overlap"):
        out += ["## Beside a computation", "",
                "*limit* is the longest of: input alone, computation alone, and all processor seconds of both over the cores.", "",
                "| cores that compute | input | its processor seconds | computation | both | over the longer | limit over the longer | "
                "over the limit |", "|---" * 8 + "|"]
        for (busy, cores), (total, over, limit, *parts) in overlaps(r["overlap"]).items():
            cells = " | ".join(f"{p:.3f}" for p in parts)
            out.append(f"| {busy} of {cores} | {cells} | {total:.3f} | {limit:.3f} | {over:.3f} |")
        out.append("")
    if r.get("reader"):
        processor = r["reader"].get("processor", {})
        out += ["## Small reads, one after the other", "", f"{r['records']:,} of 48 bytes, page cache warm.", "",
                "| | seconds | core-seconds for each GB |", "|---|---|---|"]
        for way, s in seconds(r["reader"]).items():
            cell = f"{median(processor[way]) / (r['records'] * 48 / 1e9):.3f}" if way in processor else ""
            out.append(f"| {way} | {median(s):.4f} | {cell} |")
        out.append("")
    for name, title in (("ranks", "Two ranks of an MPI job"), ("chares", "Chares of Charm4py on two processes, an eighth of the file")):
        if r.get(name):
            rows = medians(seconds(r[name]))
            columns = sorted(next(iter(rows.values())))
            out += [f"## {title}, page cache warm", "", *table(rows, columns), "",
                    *used(r[name].get("processor"), columns, r["bytes"])]
    if r.get("same"):
        rows, read = medians(r["same"]["seconds"]), r["same"]["read"]
        counts = sorted(next(iter(rows.values())))
        out += ["## Ranks that each read all of a quarter of the file, blocks in memory, page cache warm", "",
                "By number of ranks; MB is what all together have read from the file.", "",
                "| | " + " | ".join(f"{n} ranks, s | MB" for n in counts) + " |", "|---" * (2 * len(counts) + 1) + "|"]
        for name, by in rows.items():
            megabytes = {int(n): b / 1e6 for n, b in read[name].items()}
            out.append(f"| {name} | " + " | ".join(f"{by[n]:.3f} | {megabytes[n]:.0f}" for n in counts) + " |")
        # Each rank reads a quarter of the file.
        out += ["", *used(r["same"].get("processor"), counts, r["bytes"] / 4)]
    took = ", ".join(f"{name} {seconds:.0f}" for name, seconds in r["took"].items())
    out.append(f"Seconds that the sections took: {took}.")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(page(json.load(open(sys.argv[1]))))
