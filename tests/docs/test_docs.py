"""The documents are true: their commands run, their links lead somewhere, their lists are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from documents import BLOCKS, DOCUMENTS
from support import ROOT, command

def commands(text: str):
    """Each command with the output that the document shows below it."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append([line[2:], []])
        elif found and found[-1][0].endswith("\\"):
            found[-1][0] = found[-1][0][:-1] + line.lstrip("> ")
        else:
            assert found, f"it begins with no command: {line}"
            found[-1][1].append(line)
    return found


SESSIONS = [b for b in BLOCKS if b.kind == "console"]


@pytest.fixture(scope="session")
def playground(tmp_path_factory, flights):
    """A directory with the files that the documents speak of, and `stead` on the PATH."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "flights.csv").symlink_to(flights)
    (folder / "small.toml").symlink_to(ROOT / "examples" / "flows" / "small.toml")
    made = subprocess.run([sys.executable, ROOT / "tests" / "docs" / "playground.py", folder])
    assert made.returncode == 0
    (folder / "bin").mkdir()
    (folder / "bin" / "stead").symlink_to(command())
    return folder


def own_memory(playground: Path) -> str:
    """A configuration in which streams lie in a folder of the test's own."""
    (playground / "memory").mkdir(mode=0o700, exist_ok=True)
    own = playground / "own.toml"
    own.write_text(f'[dataspace.memory]\npath = "{playground / "memory"}"\n')
    return str(own)


def matches(shown: list[str], got: str) -> bool:
    """True if the output is what is shown; a line of dots stands for any lines, `...` for any text."""
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"[ \t]*\n"
    return re.fullmatch(pattern, got) is not None


@pytest.mark.parametrize("block", SESSIONS, ids=str)
def test_commands_do_what_the_document_says(block, playground):
    for text, shown in commands(block.text):
        environment = {
            "PATH": f"{playground / 'bin'}:/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
            "STEAD_STATE": str(playground / "state"),
        }
        if text.startswith(("stead stream", "stead flow")):
            # What other programs of this user write is not what the document shows.
            environment["STEAD_CONFIG"] = own_memory(playground)
        done = subprocess.run(
            ["bash", "-c", text], cwd=playground, env=environment, capture_output=True, text=True, timeout=300
        )
        while shown and not shown[-1].strip():
            shown.pop()
        # A document that shows an error shows it as the terminal does: on the same screen.
        got = done.stdout + done.stderr
        assert done.returncode == 0 or any(s.startswith("stead: ") or s.startswith("error: ") for s in shown), got
        if shown:
            assert matches(shown, got), f"{text}\n--- shown\n" + "\n".join(shown) + f"\n--- got\n{got}"


SNIPPETS = list(dict.fromkeys(b.path for b in BLOCKS if b.kind == "python"))


@pytest.mark.parametrize("path", SNIPPETS, ids=lambda p: str(p.relative_to(ROOT)))
def test_snippets_do_what_the_document_says(path, playground):
    script = ROOT / "tests" / "docs" / "snippets.py"
    environment = os.environ | {"STEAD_STATE": str(playground / "state"), "STEAD_CONFIG": own_memory(playground)}
    done = subprocess.run([sys.executable, script, path], cwd=playground, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        other = (path.parent / file) if file else path
        assert other.exists(), f"{path.name}: {target}"
        if anchor and other.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), flags=re.M)
            slugs = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in slugs, f"{path.name}: {target}"


#: Bounds of streams and flows that docs/limits.md has, by the file of each.
BOUNDS = {
    "crates/core/src/limits.rs": ["MAX_WRITERS", "MAX_FOLDER_WRITERS", "MAX_VARIABLES", "MAX_VARIABLE_NAME", "MAX_ATTRIBUTES", "MAX_BLOCKS"],
    "crates/stream/src/board.rs": ["GROUPS", "READERS", "NAME", "MOST_SLOTS", "SPARE"],
    "crates/stream/src/pool.rs": ["MOST_NODES"],
    "crates/daemon/src/pool.rs": ["MOST", "MOST_OF_USER"],
    "crates/daemon/src/flows.rs": ["MOST_RUNNING", "MOST_OVER"],
    "crates/flow/src/check.rs": ["MAX_NODES", "MAX_STREAMS", "MAX_SLOTS"],
    "crates/flow/src/op/window.rs": ["MAX_STEPS"],
    "crates/flow/src/op/sample.rs": ["MAX_ELEMENTS"],
}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, names in BOUNDS.items() for name in names])
def test_bounds_of_streams_are_those_of_the_code(file, name):
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    page = page[page.index("Those of [streams]") : page.index("## What it does not promise")]
    said = re.search(rf"const {name}: \w+ = ([\d_]+)(?: << (\d+))?;", (ROOT / file).read_text(encoding="utf-8"))
    assert said, f"{file} has no {name}"
    value = int(said[1].replace("_", "")) << int(said[2] or 0)
    assert re.search(rf"(?<![\d,]){value:,}(?![\d,]\d)", page), f"docs/limits.md does not say {value:,}"


def test_the_page_of_kernels_is_current():
    subprocess.run(
        [sys.executable, ROOT / "tests" / "docs" / "kernels_page.py", "--check"],
        check=True,
        env={"STEAD": command(), "PATH": "/usr/bin:/bin"},
    )


def test_the_picture_of_a_flow_is_what_the_command_draws(tmp_path):
    drawn = tmp_path / "flow-small.svg"
    subprocess.run([command(), "flow", "show", ROOT / "examples" / "flows" / "small.toml", "-o", drawn], check=True)
    assert drawn.read_text() == (ROOT / "docs" / "flow-small.svg").read_text()


def test_every_option_is_documented_in_help_with_an_example(playground):
    for verb in ["run", "describe", "read", "put", "get", "stage", "df", "ls", "calibrate", "kernels", "completions", "man"]:
        text = subprocess.run([command(), verb, "--help"], capture_output=True, text=True, check=True).stdout
        assert "Example" in text, verb
    for words in ["stream ls", "stream explain", "flow run", "admin dataspace add"]:
        text = subprocess.run([command(), *words.split(), "--help"], capture_output=True, text=True, check=True).stdout
        assert f"Examples:\n  stead {words}" in text, words


def test_completions_and_manual_pages(tmp_path):
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"]:
        out = subprocess.run([command(), "completions", shell], capture_output=True, text=True, check=True).stdout
        assert "stead" in out and len(out) > 1000
    check = subprocess.run(["bash", "-n"], input=subprocess.check_output([command(), "completions", "bash"]))
    assert check.returncode == 0
    subprocess.run([command(), "man", tmp_path / "man"], check=True)
    pages = sorted(p.name for p in (tmp_path / "man").iterdir())
    assert {"stead.1", "stead-run.1", "stead-read.1", "stead-put.1", "stead-ls.1"} <= set(pages), pages


def test_the_readme_opens_with_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)
    assert [line for b in blocks[:1] for line in b.split("\n") if line] == ["make demo", "make test"]
