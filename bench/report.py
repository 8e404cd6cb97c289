"""Tables of what was measured.

    python bench/report.py RUN.json
"""

import json
import statistics
import sys

INTRO = {
    "text": "Delimited text, 3 text and 8 numeric columns.",
    "one of the nine alone": "One pass is real if all nine together take little more than the slowest of them.",
    "grep": "4M strings of 128 bytes. ripgrep searches one file with one thread.",
    "dense": "Arrays; peers have theirs in memory before the clock starts, stead reads the file.",
    "particles": "Tipsy, 10 million particles; those of the peers are read anew each time.",
    "memory": "Kernels of several passes over a gigabyte: *peak* may be 256 MB and the states of kernels, whatever the size.",
    "vectors": "The same work with the vectors that `STEAD_SIMD` names.",
    "cold": "The file is not in the page cache. fio reads it with O_DIRECT, 32 requests of 1 MiB in flight.",
    "threads": "The same work with one thread and with two.",
    "start": "The whole process, from its start to its end.",
}


def median(runs, key):
    values = [r[key] for r in runs if r[key] is not None]
    return statistics.median(values) if values else None


def tables(whole):
    host = whole["machine"]
    day = f"{host['cpu']}, {host['cores']} cores, {', '.join(host['simd']) or 'no wide SIMD'}"
    out = [f"# {day}", "", f"`{whole['command']}`; Linux {host['kernel']}, Python {host['python']};",
           ", ".join(f"{k} {v}" for k, v in whole["versions"].items()), "",
           "Medians. *ratio* is the time of the peer over that of stead; core-seconds per GB say how many cores keep up",
           "with a device of 1 GB/s.", ""]
    groups = []
    for job in whole["jobs"]:
        if job["group"] not in groups:
            groups.append(job["group"])
    for group in groups:
        out += [f"## {group}", "", INTRO.get(group, ""), "",
                "| job | tool | seconds | range | GB/s | core-s per GB | peak MB | ratio | wanted |", "|---" * 9 + "|"]
        for job in (j for j in whole["jobs"] if j["group"] == group):
            out += rows(job)
        out.append("")
    if whole.get("exactness"):
        out += ["## exactness", "", "What exact sums take beside plain ones, 12,288 values in the second-level cache.", "",
                "```text", whole["exactness"].rstrip(), "```", ""]
    return "\n".join(out)


def rows(job):
    ours = median(job["tools"]["stead"], "seconds") if "stead" in job["tools"] else None
    peers = {t: median(r, "seconds") for t, r in job["tools"].items() if t != "stead"}
    best = min(peers, key=peers.get) if peers else None
    for tool, runs in job["tools"].items():
        wall = [r["seconds"] for r in runs]
        peak = median(runs, "peak_bytes")
        ratio = peers[tool] / ours if tool != "stead" and ours else None
        wanted = ""
        if tool == best and job["target"]:
            wanted = f"{job['target']:g}: {'reached' if ratio >= job['target'] else '**not reached**'}"
        yield "| " + " | ".join([
            job["job"], tool, f"{median(runs, 'seconds'):.4g}", f"{min(wall):.4g} to {max(wall):.4g}",
            f"{job['bytes'] / 1e9 / median(runs, 'seconds'):.2f}",
            f"{median(runs, 'cpu_seconds') / job['bytes'] * 1e9:.2f}",
            f"{peak / 1e6:.0f}" if peak else "", f"{ratio:.2f}" if ratio else "", wanted]) + " |"
        inside = [r["inside_seconds"] for r in runs if "inside_seconds" in r]
        if inside:
            # No ratio: what is wanted is of the whole process.
            took = statistics.median(inside)
            yield "| " + " | ".join([
                job["job"], f"{tool}, its scan alone", f"{took:.4g}", f"{min(inside):.4g} to {max(inside):.4g}",
                f"{job['bytes'] / 1e9 / took:.2f}", "", "", "", ""]) + " |"


if __name__ == "__main__":
    print(tables(json.load(open(sys.argv[1]))))
