"""Kills transfers, daemons and their workers at random, many times, by the tests that look whether anything is lost, torn or left over; and
leaves a record of it.

    python bench/crashes.py STEAD OUT_DIR [--kills N] [--only EXPRESSION] [--workers N] [--check]

It takes the Python that has what the tests need (.build/venv), with the package of the same build installed. The daemon is killed so many
times, each of the other cases a fixed part of that, in runs whose random numbers begin with the seeds 0, 1, 2 and so on: a run that fails
does so again with `STEAD_CRASHES=N python -m pytest tests/faults -k NAME`, as far as it is no matter of time.

Writes OUT_DIR/DATE-HOST-crashes.json and .md; --check writes nothing. Ends with 1 if a test has failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from pathlib import Path

from run import command, commit, machine

ROOT = Path(__file__).resolve().parent.parent
#: Of the last words of a test that has failed.
MOST_SAID = 4000


def cases(report):
    """What came of each test, and how often it has killed."""
    found = []
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        said = {p.get("name"): int(p.get("value")) for p in case.iter("property") if p.get("name") in ("seeds", "kills")}
        wrong = [word for kind in ("failure", "error") for word in case.iter(kind)]
        result = "failed" if wrong else "left out" if case.find("skipped") is not None else "passed"
        why = "\n".join((word.text or word.get("message") or "")[-MOST_SAID:] for word in wrong)
        found.append({"test": f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}", "result": result,
                      "seconds": float(case.get("time", 0)), **said, **({"why": why} if why else {})})
    return found


def page(found):
    m, all_ = found["machine"], found["tests"]
    results = {result: sum(c["result"] == result for c in all_) for result in ("passed", "failed", "left out")}
    killed = sum(c.get("kills", 0) for c in all_)
    text = [f"# Crashes: {m['cpu']}, {m['cores']} cores\n",
            f"`{found['command']}`; Linux {m['kernel']}, Python {m['python']}; stead {found['version']}; {found['date']}.\n",
            f"{killed} kills in {found['seconds']:.0f} s: " + ", ".join(f"{n} tests {what}" for what, n in results.items()) + ".\n",
            "Runs are those of the seeds from 0 on. A test without a number of kills is of one place each, and not of random ones.\n",
            "| test | result | s | runs | kills |", "|---|---|--:|--:|--:|"]
    for c in all_:
        text.append(f"| `{c['test']}` | {c['result']} | {c['seconds']:.1f} | {c.get('seeds', '')} | {c.get('kills', '')} |")
    for c in all_:
        if c.get("why"):
            text += [f"\n## {c['test']}\n", "```text", c["why"].rstrip(), "```"]
    return "\n".join(text) + "\n"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("stead")
    p.add_argument("out", type=Path)
    p.add_argument("--kills", type=int, default=1000)
    p.add_argument("--only", default="kill", help="an expression of pytest for names of tests")
    p.add_argument("--workers", type=int, default=1, help="tests at a time; needs pytest-xdist")
    p.add_argument("--check", action="store_true", help="write no results")
    a = p.parse_args()
    a.stead = os.path.abspath(a.stead)
    env = os.environ | {"STEAD": a.stead, "STEAD_CRASHES": str(a.kills), "STEAD_SOCKET": "none"}
    beside = ["--numprocesses", str(a.workers), "--dist", "worksteal"] if a.workers > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-q", *beside, "-k", a.only, f"--junitxml={report}", "tests/faults"]
        begin = time.perf_counter()
        done = subprocess.run(words, cwd=ROOT, env=env)
        seconds = time.perf_counter() - begin
        if not report.exists():
            sys.exit(f"pytest has left no report: it ended with {done.returncode}")
        tests = cases(report)
    found = {"command": f"STEAD_CRASHES={a.kills} python -m pytest tests/faults -k '{a.only}'", "machine": machine(),
             "version": command([a.stead, "--version"]).split()[-1] + commit(), "date": time.strftime("%Y-%m-%d %H:%M"),
             "kills": a.kills, "seconds": seconds, "result": done.returncode, "tests": tests}
    text = page(found)
    print(text)
    if not a.check:
        host = found["machine"]
        stamp = f"{time.strftime('%Y-%m-%d')}-{host['cpu'].lower().replace(' ', '-')}-{host['cores']}-crashes"
        a.out.mkdir(parents=True, exist_ok=True)
        (a.out / f"{stamp}.json").write_text(json.dumps(found, indent=1) + "\n")
        (a.out / f"{stamp}.md").write_text(text)
    sys.exit(1 if done.returncode else 0)


if __name__ == "__main__":
    main()
