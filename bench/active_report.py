"""Tables, and the picture of the map, of what bench/active.py has measured.

    python bench/active_report.py RUN.json
"""

import json
import math
import statistics
import sys

# Bytes in a second of one link.
LINK = 125e6
COLOURS = {"pull": "#4477aa", "push": "#228833", "split": "#aa7711", "vector": "#aa3377"}
# Where a run takes less, its start and its end are much of it.
LONG = 0.5


def median(runs, place, key="seconds"):
    return statistics.median(one[key] for one in runs if one["place"] == place)


def at(runs, place):
    """The median of all runs that have computed there, be it that they were told to or that they chose it."""
    return statistics.median(one["seconds"] for one in runs if one["plan"]["place"] == place)


def cores(runs, place):
    """Core-seconds of all ranks together, as `at`."""
    of = [one["cpu_seconds"] for one in runs if one.get("cpu_seconds") is not None and one["plan"]["place"] == place]
    return f"{statistics.median(of):.3g}" if of else ""


def predicted(runs, place):
    """Seconds, as those of these runs that were to choose, or all, have predicted them."""
    of = [a["seconds"] for one in runs for a in one["plan"]["alternatives"] if a["place"] == place]
    return statistics.median(of) if of else None


def chosen(runs):
    """The place that was chosen most often, where it could be."""
    of = [one["plan"]["place"] for one in runs if one["place"] == "auto"]
    return max(sorted(set(of)), key=of.count) if of else None


def row(*cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(header, rows):
    return [row(*header), "|---" * len(header) + "|", *(row(*r) for r in rows), ""]


def is_reached(so):
    return "reached" if so else "**not reached**"


def wires(found):
    rows = []
    for pairs in sorted({one["pairs"] for one in found}):
        rates = {one["way"]: one["bytes"] / statistics.median(one["seconds"]) / pairs for one in found if one["pairs"] == pairs}
        for way, rate in rates.items():
            least = min(one["bytes"] / max(one["seconds"]) / pairs for one in found if (one["pairs"], one["way"]) == (pairs, way))
            of = "Open MPI" if way == "pull" else None
            rows.append((pairs, way, f"{rate / 1e6:.1f} ({least / 1e6:.1f})", f"{rate / LINK:.3f}{', ' + is_reached(rate >= 0.9 * LINK) if of else ''}",
                         f"{rate / rates[of]:.3f}" if of in rates else ""))
    return ["## What a link carries", "",
            "MB a second of each link, and the least of the runs: a stream of TCP between two programs in Python; messages of 1 MiB of plain MPI,",
            "16 under way; and *pull*: `sum` over 1 GB that as many hosts have as ask for it, each of these of all of those. Expected are 0.956 of",
            "125 MB/s at most: the rest are the heads of Ethernet, IP and TCP. Wanted of *pull* are 0.9. With four links all eight hosts share the",
            "processors of the machine, and each byte costs some of them on its way.", "",
            *table(("hosts on each side", "way", "MB/s of a link", "of 125 MB/s", "of plain MPI"), rows)]


def asks(found):
    rows = []
    for one in found:
        took = {way: statistics.median(us) for way, us in one["microseconds"].items()}
        tail = {way: statistics.quantiles(us, n=10)[-1] for way, us in one["microseconds"].items() if len(us) > 1}
        over = took["ask"] - took["ping-pong"]
        cell = lambda way: f"{took[way]:.1f} ({tail[way]:.1f})" if way in tail else ""
        rows.append((one["mpi"], *(cell(way) for way in ("ping-pong", "here", "ask")), f"{over:.1f}, {is_reached(over < 1000)}", cell("quiet")))
    return ["## A small ask of another rank", "",
            "Microseconds, and of each tenth the longest: 8 bytes of MPI there and back; the mean of a table of 4 KiB in the asking process; the same",
            "asked of another rank of this machine, one after the other, which is to take less than a millisecond beside the message; and after",
            "two seconds without any, when who listens naps for up to 10 ms.", "",
            *table(("MPI", "there and back", "here", "ask", "ask, beside the message", "after two seconds"), rows)]


def traditional(found):
    rows = []
    for one in found:
        runs, size = one["runs"], one["bytes"]
        pull, push = (median(runs, p) for p in ("pull", "push"))
        far, near = (median(runs, p, "network_bytes") for p in ("pull", "push"))
        expected = predicted(runs, "pull") / predicted(runs, "push")
        saved = 1 - near / far
        rows.append((one["request"], f"{size / 1e6:.0f}", f"{pull:.3f}", f"{push:.3f}", f"{pull / push:.1f}", f"{expected:.1f}",
                     f"{pull / push / expected:.2f}, {is_reached(pull / push >= 0.9 * expected)}",
                     f"{size / pull / (4 * LINK):.2f}", f"{far / 1e6:.1f}", f"{near / 1e6:.2f}",
                     f"{100 * saved:.2f} %, {is_reached(saved >= one['saved'])}", cores(runs, "pull"), cores(runs, "push")))
    head = ("request", "MB", "pull, s", "push, s", "times faster", "predicted", "of it", "pull, of the links", "pull, MB moved",
            "push, MB moved", "saved", "pull, core-s", "push, core-s")
    return ["## 4 hosts that ask, 4 that have the data", "",
            "*predicted* is how many times faster the model says that push is: what the storage hosts compute in a second over what the",
            "links carry. Wanted are 0.9 of it, and 99 % of the bytes saved; 97 % for `kmeans` and `render`.", "", *table(head, rows)]


def scaling(found):
    sizes = sorted({one["bytes"] for one in found})
    rows = []

    def cell(runs, size):
        took, said = median(runs, "push"), predicted(runs, "push")
        more = f"; {used} core-s" if (used := cores(runs, "push")) else ""
        told = f"{said:.3f}; " if said else ""
        return f"{took:.3f} ({told}{size / took / 1e9:.2f} GB/s{more})"

    for hosts in sorted({one["hosts"] for one in found}):
        of = {one["bytes"]: one["runs"] for one in found if one["hosts"] == hosts}
        rows.append((hosts, *(cell(of[s], s) if s in of else "" for s in sizes)))
    return ["## Sum on 1, 2 and 4 storage hosts", "",
            "Seconds; in brackets what was predicted, bytes a second, and core-seconds of all ranks. Expected: with the size they grow as it does, once it is more than what a",
            "run takes anyway; with hosts they fall as the hosts' processors become more. Here they do not become more, for all hosts share those of",
            "one machine, and one host alone can have all of them: so with hosts nothing is gained, and what meeting more ranks takes is lost.", "",
            *table(("hosts", *(f"{s / 1e6:.0f} MB" for s in sizes)), rows)]


def of_cells(found):
    """The places of all, and a row for each."""
    rows = []
    places = [p for p in COLOURS if any(r["plan"]["place"] == p for one in found for r in one["runs"])]
    for one in found:
        runs = one["runs"]
        took = {p: at(runs, p) for p in places}
        said = {p: predicted(runs, p) for p in places}
        best, auto = min(took, key=took.get), took[chosen(runs)]
        either = min(took["pull"], took["push"])
        # What both sides do together is worth it where neither does nearly all of it.
        worth = said["split"] is not None and said["split"] < 0.9 * min(said["pull"], said["push"]) and either > LONG
        rows.append((one["request"], "busy" if one["busy"] else "idle", f"{one['bytes'] / 1e6:.3g}",
                     *(f"{took[p]:.3f} ({said[p]:.3f})" if said[p] is not None else f"{took[p]:.3f}" for p in places), f"{median(runs, 'auto'):.3f}", best,
                     chosen(runs), f"{auto / took[best]:.2f}, {is_reached(auto <= 1.05 * took[best])}",
                     is_reached(took["split"] < either) if worth else "", f"{one['bytes'] / took['pull'] / LINK:.2f}", *(cores(runs, p) for p in places)))
    head = ("request", "host", "MB", *(f"{p}, s" for p in places), "auto, s", "best", "chosen", "chosen over best", "split better than both",
            "pull, of the link", *(f"{p}, core-s" for p in places))
    # Of those that were chosen over the best.
    good = sum("**" not in r[6 + len(places)] for r in rows)
    return good, table(head, rows)


def cells(found):
    good, lines = of_cells(found)
    return ["## A storage device that is 6.8 times slower than the host", "",
            "In brackets what was predicted. Runs that chose a place are among those of the place. The place that was chosen is to be within",
            f"5 % of the best one: it is in {good} of {len(found)} cells. *split* is to be better than both where the model says that it saves a",
            f"tenth, and the run takes more than {LONG} s. Core-seconds are of all ranks together.", "", *lines]


def vectors(found):
    good, lines = of_cells(found)
    return ["## Columns of text, on a storage device that has half of the processors", "",
            "*vector*: those that have the text parse it and send columns of it, those that ask compute on these. The place that was chosen is",
            f"within 5 % of the best one in {good} of {len(found)} cells. Host and device share the processors of the machine.", "", *lines]


def nine(found):
    rows = []
    for one in found:
        ours, peer = median(one["runs"], "push"), one["spark"]
        runs = [f"{r['seconds']:.1f}" for r in peer["runs"]] if peer else []
        if peer and peer["over"]:
            spent = peer["most"] - sum(r["seconds"] for r in peer["runs"])
            runs.append(f"more than {spent:.0f}")
        later = [r["seconds"] for r in peer["runs"][1:]] if peer else []
        times = f"{statistics.median(later) / ours:.1f}" if later else ""
        if peer and not later:
            times = f"{peer['runs'][0]['seconds'] / ours:.1f} (the first)" if peer["runs"] else f"more than {spent / ours:.0f}"
        used = [r["cpu_seconds"] for r in one["runs"] if r.get("cpu_seconds") is not None]
        used = f"{statistics.median(used):.2f}" if used else ""
        rows.append((f"{one['bytes'] / 1e6:.0f}", f"{ours:.2f}", f"{median(one['runs'], 'push', 'job_seconds'):.2f}", used, *(runs + ["", ""])[:2], times))
    head = ("MB", "stead, s", "with the start of MPI, s", "stead, core-s", "PySpark, the first, s", "PySpark, later, s", "times faster")
    return ["## Nine operations on text, over 4 storage hosts", "",
            "PySpark: a standalone cluster with a worker of one core on each host, the first of its runs and a later one in a session that is there",
            "already; what takes longer than the time that it was given is ended (*more than*). stead begins anew each time. Both have found the same.",
            "Expected: both take as long as the processors of the machine need for the work, which all four hosts share, and grow with the size.", "",
            *table(head, rows)]


def left_out(whole):
    names = [f"{section}: {', '.join(names)}" for section, names in whole.get("left_out", {}).items() if names]
    return ["Left out, as the time of their sections was over: " + "; ".join(names) + ".", ""] if names else []


SECTIONS = {"wire": wires, "asks": asks, "traditional": traditional, "scaling": scaling, "map": cells, "vector": vectors, "nine": nine}


def tables(whole):
    host = whole["machine"]
    out = [f"# Computing near the data: {host['cpu']}, {host['cores']} cores", "",
           f"`{whole['command']}`; Linux {host['kernel']}, stead {whole['versions']['stead']}", "",
           "Hosts are network namespaces of one machine, joined by links of 1 Gb/s; they share its processors. Medians. Seconds are",
           "those of the run, without the start of MPI, unless it is said; bytes are what the links counted, with the start of MPI.", ""]
    for name, of in SECTIONS.items():
        out += of(whole[name]) if name in whole else []
    out += left_out(whole)
    return "\n".join(out)


def picture(found):
    """A square for each cell: the colour is the place that wins; size, its seconds, and the place that was chosen."""
    requests = list(dict.fromkeys(one["request"] for one in found))
    sizes = {request: sorted({one["bytes"] for one in found if one["request"] == request}) for request in requests}
    columns = max(map(len, sizes.values()))
    colours = {p: c for p, c in COLOURS.items() if any(r["plan"]["place"] == p for one in found for r in one["runs"])}
    wide, high, left, top, gap = 92, 58, 70, 34, 30
    out = []

    def text(x, y, said, **more):
        given = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in more.items())
        out.append(f'<text x="{x:g}" y="{y:g}" font-size="12" {given}>{said}</text>')

    for half, busy in enumerate((False, True)):
        x0 = left + half * (columns * wide + gap)
        text(x0, 20, "the host that asks is " + ("busy" if busy else "idle"))
        for j, request in enumerate(requests):
            y = top + j * high
            if half == 0:
                text(left - 8, y + high / 2, request, text_anchor="end")
            for i, size in enumerate(sizes[request]):
                one = next((o for o in found if (o["request"], o["busy"], o["bytes"]) == (request, busy, size)), None)
                if one is None:
                    continue
                took = {p: at(one["runs"], p) for p in colours}
                best = min(took, key=took.get)
                x = x0 + i * wide
                out.append(f'<rect x="{x}" y="{y}" width="{wide - 4}" height="{high - 4}" fill="{COLOURS[best]}" />')
                for line, said in enumerate([f"{size / 1e6:.3g} MB", f"{took[best]:.2g} s", f"chose {chosen(one['runs'])}"]):
                    text(x + wide / 2 - 2, y + 17 + 15 * line, said, text_anchor="middle", fill="white")
    below = top + len(requests) * high + 22
    for i, (place, colour) in enumerate(colours.items()):
        out.append(f'<rect x="{left + i * 130}" y="{below - 12}" width="14" height="14" fill="{colour}" />')
        text(left + i * 130 + 20, below, f"{place} is fastest")
    width, height = left + 2 * columns * wide + gap + 6, below + 14
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white" />', *out, "</svg>"]) + "\n"


def bars(title, groups):
    """Groups of bars on one scale of seconds: a name, and of each bar its label, its seconds and its colour."""
    high = max(seconds for _, each in groups for _, seconds, _ in each)
    step = 10 ** math.floor(math.log10(high))
    step = step / 2 if high < 2 * step else step
    wide, left, top, thick = 420, 190, 34, 20
    at = lambda seconds: wide * seconds / high
    out, y = [f'<text x="10" y="20" font-size="13">{title}</text>'], top
    for name, each in groups:
        out.append(f'<text x="10" y="{y + 14}" font-size="12">{name}</text>')
        for label, seconds, colour in each:
            long = at(seconds)
            out.append(f'<text x="{left - 8}" y="{y + 14}" font-size="12" text-anchor="end">{label}</text>')
            out.append(f'<rect x="{left}" y="{y + 2}" width="{long:.1f}" height="{thick - 4}" fill="{colour}" />')
            out.append(f'<text x="{left + long + 5:.1f}" y="{y + 14}" font-size="12">{seconds:.3g} s</text>')
            y += thick
        y += 8
    for i in range(math.floor(high / step) + 1):
        mark = i * step
        x = left + at(mark)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{y}" stroke="#bbbbbb" />')
        out.append(f'<text x="{x:.1f}" y="{y + 14}" font-size="11" text-anchor="middle">{mark:g} s</text>')
    width, height = left + wide + 80, y + 24
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white" />', *out, "</svg>"]) + "\n"


def traditional_picture(found):
    """What bringing the data takes, and computing where they are."""
    each = lambda one: [(p, median(one["runs"], p), COLOURS[p]) for p in ("pull", "push")]
    return bars("4 hosts that ask, 4 that have the data", [(f"{one['request']}, {one['bytes'] / 1e6:.0f} MB", each(one)) for one in found])


def scaling_picture(found):
    """Seconds of each size, on more and more hosts."""
    groups = {size: [one for one in found if one["bytes"] == size] for size in sorted({one["bytes"] for one in found})}
    hosts = lambda one: f"{one['hosts']} host{'s' if one['hosts'] > 1 else ''}"
    each = lambda of: [(hosts(one), median(one["runs"], "push"), COLOURS["push"]) for one in sorted(of, key=lambda o: o["hosts"])]
    return bars("sum on storage hosts", [(f"{size / 1e6:.0f} MB", each(of)) for size, of in groups.items()])


#: What is drawn of a section, and how the name of its file ends.
PICTURES = {"map": ("", picture), "traditional": ("-traditional", traditional_picture), "scaling": ("-scaling", scaling_picture)}


def pictures(whole):
    """The pictures of what was measured, by the ends of the names of their files."""
    return {end: draw(whole[name]) for name, (end, draw) in PICTURES.items() if whole.get(name)}


if __name__ == "__main__":
    print(tables(json.load(open(sys.argv[1]))))
