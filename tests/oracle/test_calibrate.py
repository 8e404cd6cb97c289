"""`stead calibrate`: what it writes, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib

from support import command


def calibrate(*words, **given) -> subprocess.CompletedProcess:
    env = {k: v for k, v in os.environ.items() if k != "STEAD_PROFILE"} | given
    return subprocess.run([command(), "calibrate", *map(str, words)], capture_output=True, text=True, timeout=100, env=env)


def test_a_profile_is_written_where_runs_look_for_it(tmp_path):
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    done = calibrate(data, "--seconds", "0.3", "--format", "json", XDG_CONFIG_HOME=str(tmp_path / "config"), STEAD_PROFILE="")
    assert done.returncode == 2 and "there is no place for the profile" in done.stderr
    own = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = calibrate(data, tmp_path, "--seconds", "0.3", "--format", "json", **own)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    path = tmp_path / "config" / "stead" / "profile.toml"
    assert said["path"] == str(path)
    profile = tomllib.loads(path.read_text())
    assert profile["version"] == 1 and len(profile["sites"]) == 1
    measured = {(k["kernel"], k["format"]) for k in profile["kernels"]}
    wanted = {
        "csv": "sum mean std grep kmeans gram digits entropy hist quantile lines rows",
        "raw": "sum mean std kmeans gram digits entropy hist quantile render",
        "lines": "lines grep digits entropy",
        "records": "rows grep digits entropy",
    }
    assert measured >= {(kernel, form) for form, kernels in wanted.items() for kernel in kernels.split()}
    assert all(k["core_s_per_gb"] > 0 for k in profile["kernels"] if k["kernel"] != "rows")
    assert data.read_bytes() == bytes(1 << 20)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config", "data"]


def test_people_read_a_table(tmp_path):
    output = tmp_path / "p.toml"
    done = calibrate(tmp_path, "--seconds", "0.3", "--output", output, "--progress", "always")
    assert done.returncode == 0, done.stderr
    assert all(part in done.stdout for part in [str(output), "host", "tier", "kmeans", "core-seconds"])
    assert "measuring sum over csv" in done.stderr


def test_what_makes_no_sense_is_refused(tmp_path):
    output = tmp_path / "p.toml"
    for words, code, says in [
        ([tmp_path / "none"], 1, "no such folder or file"),
        ([tmp_path, "--seconds", "0"], 2, "0 seconds"),
        ([tmp_path, "--seconds", "nan"], 2, "seconds"),
    ]:
        done = calibrate(*words, "--output", output)
        assert done.returncode == code and says in done.stderr and not output.exists(), done.stderr
    done = calibrate(tmp_path, "--seconds", "0.3", "--output", tmp_path / "no" / "p.toml")
    assert done.returncode == 1 and "p.toml" in done.stderr
