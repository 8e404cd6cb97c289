"""Files over nodes, from Python."""

from __future__ import annotations

import pytest
import stead


def test_a_file_goes_over_parts_and_comes_back(tmp_path):
    file, space = tmp_path / "t.csv", tmp_path / "nvme"
    space.mkdir()
    file.write_text("x,y\n" + "".join(f"{i},{i % 7}\n" for i in range(50_000)))
    seen = []
    options = {"parts": 3, "stripe": "64KiB", "align": True, "dataspaces": {"nvme": space}, "progress": seen.append}
    copied = stead.put(file, "nvme", **options)
    assert (copied.bytes, copied.parts, copied.nodes, copied.ranks) == (file.stat().st_size, 3, 1, 1)
    assert seen[-1].bytes == seen[-1].total_bytes == copied.bytes and "in 3 part(s)" in repr(copied)
    described = stead.describe_layout(copied.layout)
    assert described["name"] == "t.csv" and described["stripe"] is None and len(described["parts"]) == 3
    with pytest.raises(stead.UsageError, match="there is a layout already"):
        stead.put(file, "nvme", **options)
    assert stead.run(copied.layout, "max:x", dataspaces={"nvme": space})["max:x"] == 49_999
    with pytest.raises(stead.UsageError, match="'nvme' is not configured"):
        stead.open(copied.layout)
    with pytest.raises(stead.UsageError, match="dataspaces"):
        stead.open([1, 2], dataspaces={"nvme": space})
    back = stead.get(copied.layout, tmp_path / "back", dataspaces={"nvme": space})
    assert (tmp_path / "back").read_bytes() == file.read_bytes() and back.bytes == copied.bytes
    part = space / described["parts"][1]["path"]
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(stead.FormatError, match=r"in place of"):
        stead.get(copied.layout, dataspaces={"nvme": space}, force=True)


def test_a_signal_or_a_callback_stops_it(tmp_path):
    (tmp_path / "f").write_bytes(bytes(1 << 20))
    (tmp_path / "nvme").mkdir()

    def stop(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stead.put(tmp_path / "f", "nvme", dataspaces={"nvme": tmp_path / "nvme"}, progress=stop)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f", "nvme"] and not [*(tmp_path / "nvme").iterdir()]
