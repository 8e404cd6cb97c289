"""Reports: a mapping, data frames, JSON, text, HTML and pictures."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
import stead


@pytest.fixture
def people() -> stead.Dataset:
    text = b'name,age,city,zone\n"Doe, Jane",41,Graz,1\nJoe,NA,"Wien, Mitte",2.5\nAnn,29,Graz,NA\n'
    return stead.open(text, name="people.csv")


def test_a_mapping(people):
    r = people.run("rows", stead.mean("age"))
    assert list(r) == ["rows", "mean:age"] and len(r) == 2 and "rows" in r and "lines" not in r
    assert dict(r) == r.results == {"rows": 3, "mean:age": 35.0}
    assert r[stead.mean("age")] == 35.0 and stead.mean("age") in r
    with pytest.raises(KeyError, match="'mean:x' was not asked for; there are: rows, mean:age"):
        r["mean:x"]


def test_data_frames_of_single_values(people):
    r = people.run("rows", "mean:age", "mean:age,zone", "mean:zone", stead.hist("age", bins=2))
    df = r.to_pandas()
    assert df.shape == (1, 6)
    assert df["rows"][0] == 3 and df["rows"].dtype == np.int64
    assert df["mean:age,zone.zone"][0] == 1.75
    assert isinstance(df["hist:age,bins=2"][0], dict)
    nothing = people.run("mean:age", where="age > 100").to_pandas()
    assert np.isnan(nothing["mean:age"][0])


def test_without_pandas_the_error_says_what_to_do(people, monkeypatch):
    monkeypatch.delitem(sys.modules, "stead._frames", raising=False)
    monkeypatch.delattr(stead, "_frames", raising=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"hint: to_pandas needs pandas: .*pip install '\.\[pandas\]'") as e:
        people.run("rows").to_pandas()
    assert e.value.name == "pandas"


def test_data_frames_by_groups(people):
    df = people.run("rows", "mean:age", "min:age,zone", by="city").to_pandas()
    assert list(df.index) == ["Graz", "Wien, Mitte"] and df.index.name == "city"
    assert list(df["rows"]) == [2, 1] and df["mean:age"]["Graz"] == 35.0 and np.isnan(df["mean:age"]["Wien, Mitte"])
    assert df["min:age,zone.zone"]["Wien, Mitte"] == 2.5
    two = people.run("rows", by=["city", "zone"]).to_pandas()
    assert isinstance(two.index, pd.MultiIndex) and two.index.names == ["city", "zone"]
    assert two["rows"][("Wien, Mitte", 2.5)] == 1 and two["rows"].sum() == 3
    assert np.isnan([zone for city, zone in two.index if city == "Graz"]).any()
    none = people.run("rows", by="city", where="age > 100").to_pandas()
    assert len(none) == 0
    ints = stead.open({"g": np.array([2, 1, 2]), "x": np.ones(3)}).run("sum:x", by="g").to_pandas()
    assert list(ints.index) == [1, 2] and ints.index.dtype == np.int64


def test_data_frames_of_one_result(people, points):
    r = stead.open(points, names=["x", "y", "z"]).run(
        stead.gram("*"), stead.kmeans(k=2, rounds=2), stead.hist("x", bins=4), stead.mean("*"), "rows"
    )
    gram = r.to_pandas("gram:*")
    assert list(gram.index) == list(gram.columns) == ["x", "y", "z"] and gram.loc["x", "y"] == gram.loc["y", "x"]
    centres = r.to_pandas(stead.kmeans(k=2, rounds=2))
    assert list(centres.columns) == ["x", "y", "z", "size"] and centres["size"].sum() == len(points)
    hist = r.to_pandas(stead.hist("x", bins=4))
    assert list(hist.columns) == ["left", "right", "count"] and hist["count"].sum() == len(points)
    assert list(r.to_pandas("mean:*").index) == ["x", "y", "z"]
    assert r.to_pandas("rows")["rows"][0] == len(points)
    found = people.run(stead.grep("Graz", lines=True), by="city").to_pandas(stead.grep("Graz", lines=True))
    assert list(found.columns) == ["source", "offset", "text"] and found.loc["Graz"]["text"].iloc[1] == "Ann,29,Graz,NA"


def test_empty_results_have_their_types(points):
    r = stead.open(points[:0]).run(stead.kmeans(k=2), stead.gram("*"), stead.hist("0", bins=3), by=None)
    clusters = r[stead.kmeans(k=2)]
    assert clusters["centroids"].shape == (0, 3) and clusters["sizes"].shape == (0,) and clusters["sizes"].dtype == np.int64
    assert r["gram:*"]["matrix"].tolist() == [[0.0] * 3] * 3
    assert r["hist:0,bins=3"]["counts"].tolist() == [0, 0, 0]
    lines = stead.open(b"a\nb\n", type="lines").run(stead.grep("x", lines=True))
    assert lines[stead.grep("x", lines=True)] == {"count": 0, "lines": []}
    assert list(lines.to_pandas(stead.grep("x", lines=True)).columns) == ["source", "offset", "text"]


def test_plan_metrics_and_text(people):
    r = people.run("rows", "mean:age", where="age > 0", by="city")
    assert r.plan["where"] and r.plan["by"] == ["city"] and r.plan["format"] == "csv"
    assert r.metrics["rows"] == 3 and r.metrics["rows_kept"] == 2 and r.metrics["seconds"] > 0
    assert "mean:age" in repr(r) and "Graz" in repr(r) and "took" in r.explain()
    document = json.loads(r.to_json())
    assert set(document) == {"results", "plan", "metrics"} and document["plan"] == r.plan


def test_rich_display(people):
    evil = stead.open(b"<script>alert(1)</script>,x\n<b>,1\n", header=True)
    r = evil.run("rows", "sum:x", by="<script>alert(1)</script>")
    for page in [r._repr_html_(), evil._repr_html_(), evil.describe()._repr_html_()]:
        assert "<script" not in page and "<b>" not in page and "&lt;b&gt;" in page
    assert "data:image/svg+xml;base64," in r._repr_html_() and r.to_svg().startswith("<svg")
    for kernels in [["rows"], ["mean:age,zone"], [stead.hist("age", bins=2), "gram:age,zone"], [stead.grep("a", lines=True)]]:
        for by in [None, "city"]:
            page = people.run(kernels, by=by)._repr_html_()
            assert page.count("<table>") == page.count("</table>") > 0 and "took" not in page
    assert people.run("rows").to_svg() is None
    assert "people.csv" in repr(people) or "csv" in repr(people)
    wide = stead.open(np.zeros((3, 40))).run("gram:*")._repr_html_()
    assert wide.count("<td") < 40 * 40 and "..." in wide
