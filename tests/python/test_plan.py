"""Where to compute, from Python."""

from __future__ import annotations

import signal
import threading
import time

import pytest
import stead


def test_what_is_measured_is_written(tmp_path):
    data, output = tmp_path / "data", tmp_path / "profile.toml"
    data.write_bytes(bytes(range(256)) * 1000)
    profile = stead.calibrate([tmp_path, data], seconds=0.2, output=output)
    assert profile["path"] == str(output) and profile["version"] == 1
    assert len(profile["sites"]) == 1 and profile["sites"][0]["cores"] > 0
    assert all(t["bytes_per_s"] > 0 and t["site"] == profile["sites"][0]["name"] for t in profile["tiers"])
    costs = {(k["kernel"], k["format"]): k["core_s_per_gb"] for k in profile["kernels"]}
    assert all(costs[kernel, form] > 0 for kernel in ["sum", "kmeans", "gram", "digits"] for form in ["csv", "raw"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "profile.toml"]
    assert 'format = "csv"' in output.read_text()


def test_what_cannot_be_measured(tmp_path):
    with pytest.raises(stead.NotFoundError, match="no such folder or file on any host"):
        stead.calibrate(tmp_path / "none", seconds=0.2, output=tmp_path / "p")
    with pytest.raises(stead.UsageError, match="-1 seconds"):
        stead.calibrate(tmp_path, seconds=-1, output=tmp_path / "p")
    with pytest.raises(stead.NotFoundError):
        stead.calibrate(tmp_path, seconds=0.2, output=tmp_path / "no" / "p")
    assert not [*tmp_path.iterdir()]


def test_ctrl_c_stops_it(tmp_path):
    def interrupt():
        time.sleep(0.5)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=interrupt).start()
        stead.calibrate(tmp_path, seconds=600, output=tmp_path / "p")
    assert not [*tmp_path.iterdir()]
