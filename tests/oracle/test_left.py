"""What tests leave that are killed."""

from __future__ import annotations

import os
import subprocess
import tempfile

from support import sweep


def test_what_killed_tests_have_left_goes_when_others_begin(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait(60)
    lives = tempfile.mkdtemp(dir=tmp_path)
    assert str(os.getpid()) in lives
    left = [f"stead-p{ended.pid}-abc_d123", f"stead-test-{ended.pid}"]
    others = [f"stead-{ended.pid}", f"stead-test-{os.getpid()}", f"stead-p{ended.pid}-notes", f"stead-test-{ended.pid}-x"]
    for name in left + others:
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "f").write_bytes(b"f")
    (tmp_path / f"stead-campaign-{ended.pid}").symlink_to(tmp_path / others[0])
    sweep(tmp_path, tmp_path / "none")
    assert {path.name for path in tmp_path.iterdir()} == {os.path.basename(lives), *others}
    assert all((tmp_path / name / "deep" / "f").exists() for name in others)
