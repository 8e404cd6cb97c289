"""Tables, and the picture of the map, of what bench/active.py has measured.

    python bench/active_report.py RUN.json
"""

import json
import statistics
import sys

# Bytes in a second of one link.
LINK = 125e6
COLOURS = {"pull": "#4477aa", "push": "#228833", "split": "#aa7711"}
# Where a run takes less, its start and its end are much of it.
LONG = 0.5


def median(runs, place, key="seconds"):
    return statistics.median(one[key] for one in runs if one["place"] == place)


def at(runs, place):
    """The median of all runs that have computed there, be it that they were told to or that they chose it."""
    return statistics.median(one["seconds"] for one in runs if one["plan"]["place"] == place)


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
                     f"{100 * saved:.2f} %, {is_reached(saved >= one['saved'])}"))
    head = ("request", "MB", "pull, s", "push, s", "times faster", "predicted", "of it", "pull, of the links", "pull, MB moved",
            "push, MB moved", "saved")
    return ["## 4 hosts that ask, 4 that have the data", "",
            "*predicted* is how many times faster the model says that push is: what the storage hosts compute in a second over what the",
            "links carry. Wanted are 0.9 of it, and 99 % of the bytes saved; 97 % for `kmeans` and `render`.", "", *table(head, rows)]


def scaling(found):
    sizes = sorted({one["bytes"] for one in found})
    rows = []
    for hosts in sorted({one["hosts"] for one in found}):
        of = {one["bytes"]: median(one["runs"], "push") for one in found if one["hosts"] == hosts}
        rows.append((hosts, *(f"{of[s]:.3f} ({s / of[s] / 1e9:.2f} GB/s)" for s in sizes)))
    return ["## Sum on 1, 2 and 4 storage hosts, seconds", "", *table(("hosts", *(f"{s / 1e6:.0f} MB" for s in sizes)), rows)]


def cells(found):
    rows = []
    for one in found:
        runs = one["runs"]
        took = {p: at(runs, p) for p in COLOURS}
        said = {p: predicted(runs, p) for p in COLOURS}
        best, auto = min(took, key=took.get), took[chosen(runs)]
        either = min(took["pull"], took["push"])
        # What both sides do together is worth it where neither does nearly all of it.
        worth = said["split"] is not None and said["split"] < 0.9 * min(said["pull"], said["push"]) and either > LONG
        rows.append((one["request"], "busy" if one["busy"] else "idle", f"{one['bytes'] / 1e6:.3g}",
                     *(f"{took[p]:.3f} ({said[p]:.3f})" if said[p] is not None else f"{took[p]:.3f}" for p in COLOURS), f"{median(runs, 'auto'):.3f}", best,
                     chosen(runs), f"{auto / took[best]:.2f}, {is_reached(auto <= 1.05 * took[best])}",
                     is_reached(took["split"] < either) if worth else "", f"{one['bytes'] / took['pull'] / LINK:.2f}"))
    good = sum("**" not in r[9] for r in rows)
    head = ("request", "host", "MB", "pull, s", "push, s", "split, s", "auto, s", "best", "chosen", "chosen over best", "split better than both",
            "pull, of the link")
    return ["## A storage device that is 6.8 times slower than the host", "",
            "In brackets what was predicted. Runs that chose a place are among those of the place. The place that was chosen is to be within",
            f"5 % of the best one: it is in {good} of {len(rows)} cells. *split* is to be better than both where the model says that it saves a",
            f"tenth, and the run takes more than {LONG} s.", "", *table(head, rows)]


def nine(found):
    rows = []
    for one in found:
        ours, peer = median(one["runs"], "push"), one["spark"] or []
        later = statistics.median(r["seconds"] for r in peer[1:]) if peer[1:] else None
        cells = [f"{peer[0]['seconds']:.1f}" if peer else "", f"{later:.1f}" if later else "", f"{later / ours:.1f}" if later else ""]
        rows.append((f"{one['bytes'] / 1e6:.0f}", f"{ours:.2f}", f"{median(one['runs'], 'push', 'job_seconds'):.2f}", *cells))
    head = ("MB", "stead, s", "with the start of MPI, s", "PySpark, the first, s", "PySpark, later, s", "times faster")
    return ["## Nine operations on text, over 4 storage hosts", "",
            "PySpark: a standalone cluster with a worker of one core on each host; the first of its runs, and later ones in a session that is",
            "there already. stead begins anew each time.", "", *table(head, rows)]


SECTIONS = {"traditional": traditional, "scaling": scaling, "map": cells, "nine": nine}


def tables(whole):
    host = whole["machine"]
    out = [f"# Computing near the data: {host['cpu']}, {host['cores']} cores", "",
           f"`{whole['command']}`; Linux {host['kernel']}, stead {whole['versions']['stead']}", "",
           "Hosts are network namespaces of one machine, joined by links of 1 Gb/s; they share its processors. Medians. Seconds are",
           "those of the run, without the start of MPI, unless it is said; bytes are what the links counted, with the start of MPI.", ""]
    for name, of in SECTIONS.items():
        out += of(whole[name]) if name in whole else []
    return "\n".join(out)


def picture(found):
    """A square for each cell: the colour is the place that wins; size, its seconds, and the place that was chosen."""
    requests = list(dict.fromkeys(one["request"] for one in found))
    sizes = {request: sorted({one["bytes"] for one in found if one["request"] == request}) for request in requests}
    columns = max(map(len, sizes.values()))
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
                one = next(o for o in found if (o["request"], o["busy"], o["bytes"]) == (request, busy, size))
                took = {p: at(one["runs"], p) for p in COLOURS}
                best = min(took, key=took.get)
                x = x0 + i * wide
                out.append(f'<rect x="{x}" y="{y}" width="{wide - 4}" height="{high - 4}" fill="{COLOURS[best]}" />')
                for line, said in enumerate([f"{size / 1e6:.3g} MB", f"{took[best]:.2g} s", f"chose {chosen(one['runs'])}"]):
                    text(x + wide / 2 - 2, y + 17 + 15 * line, said, text_anchor="middle", fill="white")
    below = top + len(requests) * high + 22
    for i, (place, colour) in enumerate(COLOURS.items()):
        out.append(f'<rect x="{left + i * 130}" y="{below - 12}" width="14" height="14" fill="{colour}" />')
        text(left + i * 130 + 20, below, f"{place} is fastest")
    width, height = left + 2 * columns * wide + gap + 6, below + 14
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white" />', *out, "</svg>"]) + "\n"


if __name__ == "__main__":
    print(tables(json.load(open(sys.argv[1]))))
